"""The messages of tf.train.Example, made by protobuf alone: TensorFlow takes seconds to import."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

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
"""

# A pool of its own: TensorFlow has messages of these names in the default one.
_pool = descriptor_pool.DescriptorPool()
_pool.Add(text_format.Parse(_FILE + _LISTS, descriptor_pb2.FileDescriptorProto()))

Feature, Features, Example, BytesList, FloatList, Int64List = (
    message_factory.GetMessageClass(message)
    for message in _pool.FindFileByName("example.proto").message_types_by_name.values()
)
