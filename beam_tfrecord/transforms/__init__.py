"""The Beam transforms, public ones (`transforms`, `writing`, `databases`) and their parts."""
