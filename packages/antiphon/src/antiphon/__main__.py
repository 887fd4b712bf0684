"""`python -m antiphon` is `antiphon`."""

from antiphon.cli import main

raise SystemExit(main())
