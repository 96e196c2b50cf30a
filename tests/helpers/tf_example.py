"""Messages of TensorFlow, made by protobuf alone: TensorFlow takes seconds to import."""

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)

_LISTS = "".join(
    f'message_type {{ name: "{kind}List" '
    f'field {{ name: "value" number: 1 label: LABEL_REPEATED type: TYPE_{kind.upper()} }} }}'
    for kind in ("Bytes", "Float", "Int64")
)
_FILE = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type { name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type_name: "BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type_name: "FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type_name: "Int64List" oneof_index: 0 } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type_name: "FeatureEntry" }
  nested_type { name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type_name: "Feature" } } }
message_type { name: "Example" field { name: "features" number: 1 type_name: "Features" } }
message_type { name: "SequenceExample"
  field { name: "context" number: 1 type_name: "Features" }
  field { name: "feature_lists" number: 2 type_name: "FeatureLists" } }
message_type { name: "FeatureLists"
  field { name: "feature_list" number: 1 label: LABEL_REPEATED type_name: "FeatureListEntry" }
  nested_type { name: "FeatureListEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type_name: "FeatureList" } } }
message_type { name: "FeatureList"
  field { name: "feature" number: 1 label: LABEL_REPEATED type_name: "Feature" } }
"""

# A pool of its own: TensorFlow has messages of these names in the default one.
_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_FILE + _LISTS, descriptor_pb2.FileDescriptorProto()))

Feature, Features, Example, SequenceExample, FeatureLists, FeatureList, *_numbers = (
    message_factory.GetMessageClass(message)
    for message in _pool.FindFileByName("example.proto").message_types_by_name.values()
)
BytesList, FloatList, Int64List = _numbers

# Messages that are no Example.
OTHER_MESSAGES = (
    SequenceExample,
    Features,
    any_pb2.Any,
    duration_pb2.Duration,
    empty_pb2.Empty,
    field_mask_pb2.FieldMask,
    struct_pb2.Struct,
    struct_pb2.ListValue,
    struct_pb2.Value,
    timestamp_pb2.Timestamp,
    wrappers_pb2.BoolValue,
    wrappers_pb2.BytesValue,
    wrappers_pb2.DoubleValue,
    wrappers_pb2.Int64Value,
    wrappers_pb2.StringValue,
)
