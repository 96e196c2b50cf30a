


import beam_tfrecord as bt

print(bt.write.__doc__.splitlines()[0])  # help(bt.write) has arguments, results and errors
