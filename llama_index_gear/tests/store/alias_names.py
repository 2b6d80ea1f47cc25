"""Names that mean the same, and names that do not, with the facts that a corpus would hold of them.

The lists were written before the rules that are tested with them. A name may take a rule that the package does not
have: the test holds the figures, whatever they are.
"""

from __future__ import annotations

from typing import NamedTuple


class Names(NamedTuple):
    """Two names, and the facts that stand in the same corpus: each passage's facts stand together."""

    one: str
    other: str
    passages: tuple[tuple[tuple[str, str, str], ...], ...] = ()


SAME = (
    Names(
        "Dell Curry",
        "Wardell Stephen Curry Sr.",
        (
            (
                ("Dell Curry", "played for", "Charlotte Hornets"),
                ("Dell Curry", "was drafted from", "Virginia Tech"),
            ),
            (
                ("Wardell Stephen Curry Sr.", "scored for", "Charlotte Hornets"),
                ("Wardell Stephen Curry Sr.", "studied at", "Virginia Tech"),
            ),
        ),
    ),
    Names("U.S.", "United States", ((("U.S.", "bought", "Alaska"),), (("United States", "governs", "Alaska"),))),
    Names(
        "IBM",
        "International Business Machines",
        ((("International Business Machines", "is abbreviated as", "IBM"),), (("IBM", "built", "Deep Blue"),)),
    ),
    Names("Beyoncé", "Beyonce"),
    Names("Toni Morrison", "Morrison, Toni"),
    Names("J. R. R. Tolkien", "John Ronald Reuel Tolkien"),
    Names("J. Robert Oppenheimer", "Julius Robert Oppenheimer"),
    Names("Hanseatic Cables AG", "Hanseatic Cables"),
    Names("Acme Widgets, Inc.", "Acme Widgets Incorporated"),
    Names("Dr. Jane Goodall", "Jane Goodall"),
    Names("Sir Isaac Newton", "Isaac Newton"),
    Names("Sammy Davis Jr.", "Sammy Davis, Junior"),
    Names("University of Göttingen", "Göttingen University"),
    Names(
        "NATO",
        "North Atlantic Treaty Organization",
        ((("North Atlantic Treaty Organization", "was joined by", "Finland"),), (("Finland", "joined", "NATO"),)),
    ),
    Names("Franklin D. Roosevelt", "Franklin Delano Roosevelt"),
    Names(
        "FDR",
        "Franklin Delano Roosevelt",
        ((("FDR", "signed", "Social Security Act"), ("Franklin Delano Roosevelt", "was born in", "Hyde Park")),),
    ),
    Names("Jürgen Müller", "Juergen Mueller"),
    Names("The Beatles", "Beatles"),
    Names("St. Petersburg", "Saint Petersburg"),
    Names("Samuel Clemens", "Mark Twain", ((("Samuel Clemens", "is better known as", "Mark Twain"),),)),
    Names('William "Bill" Gates', "Bill Gates"),
    Names(
        "Bobby Kennedy",
        "Robert Kennedy",
        (
            (("Bobby Kennedy", "married", "Ethel Skakel"), ("Bobby Kennedy", "was shot in", "Ambassador Hotel")),
            (("Robert Kennedy", "died after a speech in", "Ambassador Hotel"),),
            (("Ethel Skakel", "was the wife of", "Robert Kennedy"),),
        ),
    ),
    Names("AT&T", "AT and T"),
    Names("European Union", "EU", ((("European Union", "also called", "EU"),),)),
    Names("Petersen & Sons", "Petersen and Sons Ltd."),
    Names("Antonín Dvořák", "Antonin Dvorak"),
    Names(
        "Priyanka Venkatesan",
        "PV",
        (
            (("Who's who", "Priyanka Venkatesan: Pri, PV.", "Priyanka Venkatesan"), ("Who's who", "PV.", "PV")),
            (("On-call rota", "PV has the first week of May.", "PV"),),
        ),
    ),
    Names(
        "Mikhail Gorbachev",
        "Mikhail Sergeyevich Gorbachev",
        (
            (("Mikhail Gorbachev", "was born in", "Privolnoye"), ("Mikhail Gorbachev", "married", "Raisa Titarenko")),
            (
                ("Mikhail Sergeyevich Gorbachev", "came from", "Privolnoye"),
                ("Raisa Titarenko", "was the wife of", "Mikhail Sergeyevich Gorbachev"),
            ),
        ),
    ),
    Names("Muammar Gaddafi", "Moammar Gadhafi", ((("Muammar Gaddafi", "ruled", "Libya"),),)),
    Names("King Henry VIII", "Henry VIII"),
)
"""Pairs of names that mean the same."""

APART = (
    Names("George Bush", "George W. Bush", ((("George Bush", "owned", "Texas Rangers"),),)),
    Names("George W. Bush", "George H. W. Bush", ((("George W. Bush", "is a son of", "George H. W. Bush"),),)),
    Names("Henry IV", "Henry V"),
    Names("Apollo 11", "Apollo 12"),
    Names(
        "John Adams",
        "John Quincy Adams",
        (
            (("John Adams", "was born in", "Braintree"), ("John Adams", "was the husband of", "Abigail Adams")),
            (
                ("John Quincy Adams", "was born in", "Braintree"),
                ("Abigail Adams", "was the mother of", "John Quincy Adams"),
                ("John Quincy Adams", "was the eldest son of", "John Adams"),
            ),
        ),
    ),
    Names(
        "Stephen Curry",
        "Wardell Stephen Curry Sr.",
        (
            (
                ("Stephen Curry", "grew up in", "Charlotte"),
                ("Wardell Stephen Curry Sr.", "lived in", "Charlotte"),
            ),
        ),
    ),
    Names("Martin Luther", "Martin Luther King Jr.", ((("Martin Luther King Jr.", "is named for", "Martin Luther"),),)),
    Names(
        "Ken Griffey Sr.",
        "Ken Griffey Jr.",
        (
            (
                ("Ken Griffey Sr.", "played for", "Seattle Mariners"),
                ("Ken Griffey Sr.", "played for", "Cincinnati Reds"),
            ),
            (
                ("Ken Griffey Jr.", "played for", "Seattle Mariners"),
                ("Ken Griffey Jr.", "played for", "Cincinnati Reds"),
            ),
        ),
    ),
    Names("pg-main-01.internal", "pg-main-02.internal"),
    Names("Michael Jordan", "Michael B. Jordan"),
    Names("Michael I. Jordan", "Michael B. Jordan"),
    Names("Georgia", "Georgia Tech"),
    Names("York", "New York"),
    Names("Washington", "Washington State University"),
    Names("Oxford University", "Oxford University Press"),
    Names("American Medical Association", "AMA", ((("American Marketing Association", "is called", "AMA"),),)),
    Names("Elizabeth I", "Elizabeth II"),
    Names("Python 2", "Python 3"),
    Names("Paris Hilton", "Hilton Paris"),
    Names("Siemens AG", "Siemens Energy"),
    Names("North Korea", "South Korea", ((("North Korea", "has a border with", "South Korea"),),)),
    Names("University of Washington", "Washington University"),
    Names("Alexandre Dumas père", "Alexandre Dumas fils"),
    Names("Boston Marathon 2012", "Boston Marathon 2013"),
    Names("Johann Strauss I", "Johann Strauss II"),
    Names("Peter Möller", "Petra Möller"),
    Names("J. Smith", "John Smith", ((("Jane Smith", "works with", "J. Smith"),),)),
    Names("Indian Ocean", "Indian Ocean Commission"),
    Names("Harry Potter", "Harry Potter and the Goblet of Fire"),
    Names(
        "CIA",
        "Culinary Institute of America",
        ((("CIA", "was led by", "Allen Dulles"),), (("Culinary Institute of America", "teaches", "cooking"),)),
    ),
)
"""Pairs of names that mean two things, or might."""
