"""Codes as the package qrcode draws them: bytes, level L, mask 0. Prints the JSON."""

import json
from importlib.metadata import version

import qrcode
from qrcode.util import MODE_8BIT_BYTE, QRData

# Lengths at which the form of a code changes, and that of the longest text.
LENGTHS = (1, 18, 107, 155, 272, 858)
TEXTS = [("https://registry.example/console/triggers/new?functionCid=Qm€&x=" * 20).encode()[:n] for n in LENGTHS]


def rows(text: str) -> str:
    """The modules of a code, a row after the other."""
    code = qrcode.QRCode(error_correction=qrcode.constants.ERROR_CORRECT_L, mask_pattern=0, border=0)
    code.add_data(QRData(text.encode(), mode=MODE_8BIT_BYTE), optimize=0)
    code.make(fit=True)
    return " ".join("".join(str(int(is_dark)) for is_dark in row) for row in code.modules)


shown = [text.decode("utf-8", "ignore") for text in TEXTS]
made = {"qrcode": version("qrcode"), "codes": {text: rows(text) for text in shown}}
print(json.dumps(made, indent=1, ensure_ascii=False))
