"""Numbers as text, and what must become of each: worked out with fractions alone.

`random_texts` draws what is hard to round: numbers halfway between two float32 or a hair beside
that, subnormal ones, ones of forty digits, ones that a float64 cannot tell apart. `check_column`
compares what was stored, and the loss that was reported, with exact arithmetic.
"""

import math
import re
import struct
from fractions import Fraction

GREATEST = 2**128 - 2**104
_OVERFLOW = GREATEST + 2**103
# What is left of a relative error where numbers are compared by way of the float64 beside them.
_SLACK = Fraction(1, 2**50)


def random_texts(rng, count):
    """Return texts of decimal numbers with a point or an exponent, within the range of float32."""
    texts = []
    while len(texts) < count:
        text = rng.choice(_KINDS)(rng)
        if "." not in text and "e" not in text.lower():
            text += ".0"
        # With a zero in front, it would be a name made of digits.
        is_number = not re.match("-?0[0-9]", text)
        if is_number and abs(Fraction(text)) < _OVERFLOW:
            texts.append(text)
    return texts


def random_float32(rng):
    """Return any float32 that is finite and positive, subnormal ones as often as others."""
    exponent = rng.choice([0, rng.randrange(255), rng.randrange(100, 150)])
    return float(struct.unpack("<f", struct.pack("<I", exponent << 23 | rng.getrandbits(23)))[0])


def rounded(number, digits):
    """Return a number cut to some significant digits, in scientific notation."""
    if not number:
        return "0.0"
    power = len(str(abs(number.numerator))) - len(str(number.denominator)) - digits
    scaled = abs(number) / Fraction(10) ** power
    return f"{'-' if number < 0 else ''}{math.floor(scaled)}e{power}"


def in_full(number):
    """Return all digits of a number whose denominator is a power of two."""
    places = number.denominator.bit_length() - 1
    whole = str(abs(number.numerator) * 5**places).rjust(places + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{whole[: len(whole) - places]}.{whole[len(whole) - places :] or '0'}"


def _halfway(rng):
    """Return the number in the middle of two neighbouring float32."""
    bits = struct.unpack("<I", struct.pack("<f", random_float32(rng)))[0]
    low, high = (
        Fraction(struct.unpack("<f", struct.pack("<I", near))[0])
        for near in (bits, min(bits + 1, 0x7F7FFFFF))
    )
    return (low + high) / 2


def _beside_halfway(rng):
    hair = Fraction(rng.choice([-1, 1]), 10 ** rng.randint(8, 40))
    return rounded(_halfway(rng) * (1 + hair), rng.randint(5, 60))


def _digits(rng, most):
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, most)))


_KINDS = (
    lambda rng: f"{rng.choice('-123456789').replace('-', '-1')}{_digits(rng, 9)}.{_digits(rng, 4)}",
    lambda rng: f"{rng.randint(1, 9)}{_digits(rng, 20)}.{_digits(rng, 25)}",
    lambda rng: f"{rng.randint(0, 9)}.{_digits(rng, 40)}",
    lambda rng: f"{rng.getrandbits(rng.randint(1, 70))}e{rng.randint(-60, 18)}",
    lambda rng: repr(rng.uniform(-1, 1)),
    lambda rng: f"{rng.uniform(-1e6, 1e6):.{rng.randint(1, 25)}f}",
    lambda rng: repr(random_float32(rng)),
    lambda rng: f"{random_float32(rng):.{rng.randint(4, 30)}e}",
    lambda rng: in_full(_halfway(rng)),
    lambda rng: in_full(_halfway(rng)) + "0" * rng.randint(0, 20) + "1",
    lambda rng: rounded(_halfway(rng), rng.randint(5, 40)),
    _beside_halfway,
    lambda rng: f"{rng.randint(2**24, 2**26)}.{'0' * rng.randint(1, 30)}{rng.choice(['', '1'])}",
    lambda rng: f"{2**53 + rng.randint(-9, 9)}.{rng.choice(['0', '5', '25'])}",
    lambda rng: f"{rng.getrandbits(rng.randint(1, 80))}{'0' * rng.randint(0, 9)}.0",
    lambda rng: f"{rng.randint(1, 10**17)}e-17".replace("e-17", f"{'0' * rng.randint(0, 20)}e-30"),
    lambda rng: f"0.5{'0' * rng.randint(0, 40)}{rng.choice(['', '1', '9'])}",
    lambda rng: f"{rng.randint(1, 10**17)}e-{rng.randint(50, 70)}",
    lambda rng: f"{rng.randint(0, 9)}e-{rng.randint(300, 500)}",
)


def to_float32(number):
    """Return the nearest float32, to even where two are as near."""
    if not number:
        return 0.0
    size = abs(number)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power += size >= Fraction(2) ** (power + 1)
    power -= size < Fraction(2) ** power
    step = Fraction(2) ** max(power - 23, -149)
    return math.copysign(float(round(size / step) * step), number)


def kept_as_float32(text):
    """Return all digits of what a database keeps of a number in 32 bits."""
    return in_full(Fraction(to_float32(Fraction(text))))


def kept_as_float64(text):
    """Return all digits of what a database keeps of a number in 64 bits."""
    return in_full(Fraction(float(text)))


def kept_as_decimal(text):
    """Return what a database keeps of a number in 19 digits behind the point."""
    number = Fraction(text)
    whole, digits = divmod(math.floor(abs(number) * 10**19), 10**19)
    return f"{'-' if number < 0 else ''}{whole}.{digits:019d}"


def digits_after(text):
    """Return the power of ten, negated, of the last digit of a number that is no zero."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    zeros = len(whole + fraction) - len((whole + fraction).rstrip("0"))
    return len(fraction) - zeros - int(exponent or 0)


def loss(text, stored):
    """Return by how much a stored number is wrong, relative to the number that a text says.

    A text that a float64 stands for, because it comes back when that is written with as many
    digits (zeros at the end do not count), says this float64.
    """
    number, nearest = Fraction(text), float(text)
    if abs(number - Fraction(nearest)) <= Fraction(1, 2) * Fraction(10) ** -digits_after(text):
        number = Fraction(nearest)
    return abs(number - Fraction(stored)) / abs(number) if number else Fraction(0)


def check_losses(texts, stored, reported):
    """Check that the largest loss of a column is what was reported; none only where there is."""
    worst = max(loss(text, value) for text, value in zip(texts, stored, strict=True))
    assert (worst > 0) == (reported > 0), (texts, stored, reported)
    # The float64 beside a subnormal one is far away: there, more may be reported than was lost.
    most = Fraction(1) if any(0 < abs(float(text)) < 1e-300 for text in texts) else worst
    assert worst - _SLACK <= reported <= most + _SLACK, (texts, float(worst), reported)


def check_column(texts, stored, reported):
    """Check that numbers were rounded once, and that the loss was reported."""
    for text, value in zip(texts, stored, strict=True):
        assert to_float32(Fraction(text)) == value, (text, value)
    check_losses(texts, stored, reported)
