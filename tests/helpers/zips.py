"""Zip files of directories, and zip files that are broken on purpose."""

import struct
import zipfile

# Offsets of fields in a header, by its signature.
_HEADERS = {b"PK\x03\x04": {"flags": 6, "method": 8}, b"PK\x01\x02": {"flags": 8, "method": 10}}


def zip_of(directory, path, method=zipfile.ZIP_DEFLATED):
    """Write a zip file of all files below a directory."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(directory.rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(directory).as_posix())
    return path


def make_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def set_field(path, field, value):
    """Overwrite a field in all headers of a zip file."""
    data = bytearray(path.read_bytes())
    for signature, fields in _HEADERS.items():
        at = data.find(signature)
        while at >= 0:
            struct.pack_into("<H", data, at + fields[field], value)
            at = data.find(signature, at + 4)
    path.write_bytes(data)
    return path


def flip_in(path, text, new):
    """Replace text in a stored member, whose CRC is then wrong."""
    data = path.read_bytes()
    assert data.count(text) == 1
    assert len(text) == len(new)
    path.write_bytes(data.replace(text, new))
    return path
