"""The formats of JSON Schema as regular expressions over the whole text (ECMAScript's dialect).

Each accepts only what its RFC calls valid; where a format is not regular (IDNA's tables, regular expressions), a
subset is accepted: a writer needs some way to be right, not every way.
"""

from __future__ import annotations

_YEAR = "[0-9]{4}"
_LEAP = "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_OFFSET = "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_FRACTION = "(?:\\.[0-9]+)?"
# A leap second is 23:59:60 in UTC; written for UTC and for whole offsets.
_LEAP_SECOND = (
    f"23:59:60{_FRACTION}(?:[zZ]|[+-]00:00)|"
    + "|".join(f"{(23 + h) % 24:02}:59:60{_FRACTION}\\+{h:02}:00" for h in range(1, 24))
    + "|"
    + "|".join(f"{(23 - h) % 24:02}:59:60{_FRACTION}-{h:02}:00" for h in range(1, 24))
)
_CLOCK = f"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{_FRACTION}{_OFFSET}"
_TIME = f"(?:{_CLOCK}|{_LEAP_SECOND})"

_TIME_PART = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DATE_PART = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:{_DATE_PART}(?:{_TIME_PART})?|{_TIME_PART}|[0-9]+W)"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = f"{_OCTET}(?:\\.{_OCTET}){{3}}"
_H16 = "[0-9a-fA-F]{1,4}"
_LS32 = f"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "(?:" + "|".join(
    [f"(?:{_H16}:){{6}}{_LS32}", f"::(?:{_H16}:){{5}}{_LS32}"]
    + [
        f"(?:(?:{_H16}:){{0,{left - 1}}}{_H16})?::(?:{_H16}:){{{5 - left}}}{_LS32}" if left < 5
        else f"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}"
        for left in range(1, 6)
    ]
    + [f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}", f"(?:(?:{_H16}:){{0,6}}{_H16})?::"]
) + ")"  # fmt: skip

_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
# Labels of IDNA are checked by tables; those that only look like one are left out with them.
_PLAIN_LABEL = f"(?![xX][nN]--){_LABEL}"
_HOSTNAME = f"(?=.{{1,253}}$){_PLAIN_LABEL}(?:\\.{_PLAIN_LABEL})*"

_ATEXT = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]"
_QUOTED = '"(?:[ !#-\\[\\]-~]|\\\\[ -~])*"'
_LITERAL = f"\\[(?:{_IPV4}|IPv6:{_IPV6})\\]"
_EMAIL = f"(?:{_ATEXT}+(?:\\.{_ATEXT}+)*|{_QUOTED})@(?:{_LABEL}(?:\\.{_LABEL})*|{_LITERAL})"

_PCT = "%[0-9A-Fa-f]{2}"
_UCS = "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{EFFFD}"


def _uri(extra: str) -> tuple[str, str]:
    """RFC 3986 (with `extra` characters: RFC 3987): absolute, and absolute or relative."""
    unreserved = f"a-zA-Z0-9._~{extra}\\-"
    sub = "!$&'()*+,;="
    pchar = f"(?:[{unreserved}{sub}:@]|{_PCT})"
    userinfo = f"(?:(?:[{unreserved}{sub}:]|{_PCT})*@)?"
    ip = f"\\[(?:{_IPV6}|[vV][0-9A-Fa-f]+\\.[{unreserved}{sub}:]+)\\]"
    authority = f"{userinfo}(?:{ip}|(?:[{unreserved}{sub}]|{_PCT})*)(?::[0-9]*)?"
    segments = f"(?:/{pchar}*)*"
    tail = f"(?:\\?(?:{pchar}|[/?])*)?(?:#(?:{pchar}|[/?])*)?"
    rooted = f"//{authority}{segments}|/(?:{pchar}+{segments})?"
    absolute = f"[a-zA-Z][a-zA-Z0-9+.-]*:(?:{rooted}|{pchar}+{segments}|){tail}"
    first = f"(?:[{unreserved}{sub}@]|{_PCT})+"
    return absolute, f"(?:{absolute}|(?:{rooted}|{first}{segments}|){tail})"


_URI, _URI_REFERENCE = _uri("")
_IRI, _IRI_REFERENCE = _uri(_UCS)

_VARNAME = f"(?:[a-zA-Z0-9_]|{_PCT})(?:\\.?(?:[a-zA-Z0-9_]|{_PCT}))*"
_VARSPEC = f"{_VARNAME}(?::[1-9][0-9]{{0,3}}|\\*)?"
_URI_TEMPLATE = (
    f"(?:[\\x21\\x23\\x24\\x26\\x28-\\x3B\\x3D\\x3F-\\x5B\\x5D\\x5F\\x61-\\x7A\\x7E{_UCS}]|{_PCT}"
    f"|\\{{[+#./;?&=,!@|]?{_VARSPEC}(?:,{_VARSPEC})*\\}})*"
)

_POINTER = "(?:/(?:[^~/]|~[01])*)*"
_HEX = "[0-9a-fA-F]"


def _up_to(last: str) -> str:
    """The digits, or letters of one case, up to `last`."""
    return "".join(map(chr, range({"9": 48, "z": 97, "Z": 65}[last], ord(last) + 1)))


# Regular expressions with groups in groups, but no deeper.
_REGEX_ESCAPE = r"\\(?:[dDwWsSbBnrtfv.*+?^$|(){}\[\]\\/-]|c[a-zA-Z]|u[0-9a-fA-F]{4})"
_REGEX_RANGE = "|".join(f"{c}-[{c}-{last}]" for last in "9zZ" for c in _up_to(last))
_REGEX_CLASS = f"\\[\\^?(?:{_REGEX_RANGE}|[^\\\\\\[\\]-]|{_REGEX_ESCAPE})*-?\\]"
_REGEX_ATOM = f"(?:[^\\\\()\\[\\]{{}}*+?|]|{_REGEX_ESCAPE}|{_REGEX_CLASS})"
_REGEX_COUNTS = "|".join(f"{d},(?:[{d}-9]|[1-9][0-9])?" for d in range(10))
_REGEX_REPEAT = f"(?:[*+?]\\??|\\{{(?:[0-9]+,?|{_REGEX_COUNTS})\\}})?"
_REGEX_OPENING = r"\((?:\?:|\?<[a-zA-Z]+>)?"
_REGEX_LOOK = r"\(\?<?[=!]"
_REGEX_FLAT = f"(?:{_REGEX_ATOM}{_REGEX_REPEAT}|\\|)*"
_REGEX_INNER = (
    f"(?:{_REGEX_FLAT}(?:{_REGEX_OPENING}{_REGEX_FLAT}\\){_REGEX_REPEAT}|{_REGEX_LOOK}{_REGEX_FLAT}\\)))*{_REGEX_FLAT}"
)
_REGEX = f"(?:{_REGEX_FLAT}(?:{_REGEX_OPENING}{_REGEX_INNER}\\){_REGEX_REPEAT}|{_REGEX_LOOK}{_REGEX_INNER}\\)))*{_REGEX_FLAT}"

FORMATS: dict[str, str] = {
    "date-time": f"{_DATE}[tT]{_TIME}",
    "date": _DATE,
    "time": _TIME,
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": '(?:[^\\x00-\\x20@"<>\\x7F]+)@(?:[^\\x00-\\x2C\\x2F\\x3A-\\x40\\x5B-\\x60\\x7B-\\x7F]+)',
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": _URI_REFERENCE,
    "iri": _IRI,
    "iri-reference": _IRI_REFERENCE,
    "uri-template": _URI_TEMPLATE,
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "uuid": f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}",
    "regex": _REGEX,
}
