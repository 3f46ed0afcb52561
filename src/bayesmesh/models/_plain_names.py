"""Names of results from names that other libraries allow."""

from __future__ import annotations

import re


def plain_name(name: str) -> str:
    """Return the name of a variable with the characters that names in results may have.

    >>> [plain_name(each) for each in ("slope", "1|site_sigma", "age|site", "C(a)[T.b]", "2nd")]
    ['slope', 'intercept_by_site_sigma', 'age_by_site', 'C(a)_T.b_', '_2nd']
    """
    name = re.sub(r"^1\|", "intercept|", name).replace("|", "_by_")
    name = re.sub(r"[^\w .:()-]", "_", name)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"
