"""The type contract: how Arrow types become features of examples, and back.

`schema` says it for a dataset, `lowering` and `raising` do it.
"""
