"""The COCO source: images with their annotated objects, from files such as instances.json."""
