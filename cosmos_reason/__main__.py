"""`python -m cosmos_reason` is `cosmos-reason`."""

from __future__ import annotations

from cosmos_reason.cli import main

if __name__ == "__main__":
    main()
