"""What is made of the corpus."""

import datetime

from sqlalchemy.orm import Mapped

from weavegen.store.models.base import Base, column, now


class View(Base):
    __tablename__ = "views"
    __table_args__ = {"comment": "The views that weavegen has made here, and of which text (store/views/)."}

    name: Mapped[str] = column("Its name.", primary_key=True)
    position: Mapped[int] = column("They are made in this order.")
    sha256: Mapped[str] = column("Hash of the text that it was made of, hexadecimal.")
    as_of: Mapped[datetime.datetime] = now(
        "When it was made; of a materialised view, as of when its rows are (weavegen refresh)."
    )
    seconds: Mapped[float] = column("Of a materialised view: what its last refresh took.", server_default="0")
