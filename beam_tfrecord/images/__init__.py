"""Pictures as bytes: what their headers say, whether they are whole, and what Pillow makes of them.

Nothing here knows Beam, Arrow or units; `describe` is the way in.
"""

from __future__ import annotations

from beam_tfrecord.images.describe import SUFFIXES as SUFFIXES
from beam_tfrecord.images.describe import describe as describe
from beam_tfrecord.images.header import Fault as Fault
from beam_tfrecord.images.header import Header as Header
