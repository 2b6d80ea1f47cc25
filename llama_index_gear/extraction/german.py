"""Names in German, where every noun has a capital letter."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_MARKS = frozenset(
    "das ist nicht ein eine einer einem einen mit auf für dem wurde wurden als auch sich sind zum zur oder"
    " aber und im wird werden bei nach aus über durch bis seit hat haben wenn dass nur noch sie er es wir ich"
    " beim vom unter am heißt kennt liegt gehört arbeitet wohnt leitet steht gibt kann muss".split()
)
_ENGLISH_MARKS = frozenset("the of and to is was with for on by as at from that which his her their are were".split())

FUNCTION_WORDS = _MARKS | frozenset(
    "dein deine deinen deinem deiner willkommen hallo danke melde öffne klicke starte prüfe siehe beachte"
    " gib lies nimm sieh"
    " zuerst der die den des von in an zu vor um ab so da dann dort hier dies diese dieser dieses diesem"
    " diesen jede jeder jedes alle alles viele einige mehrere manche kein keine sein seine seiner seinem"
    " seinen ihr ihre ihrer ihrem ihren unser unsere mein meine man wer was wie wo warum weil während nachdem"
    " bevor obwohl damit daher deshalb außerdem jedoch doch denn ob zwei drei vier fünf sechs sieben acht neun"
    " zehn elf zwölf hundert tausend geboren gegründet benannt zuvor danach später früher heute gestern morgen"
    " bereits schon erst zunächst schließlich anschließend inzwischen mittlerweile seitdem insgesamt etwa rund"
    " fast sowohl weder entweder gegen ohne zwischen neben hinter wegen trotz laut mithilfe bitte nun jetzt"
    " immer oft manchmal niemand jemand nichts etwas beide beides war waren ins ans ihm ihn ihnen uns euch du"
    " mir mich dir dich sei seien sowie sehr mehr wieder nie ja nein allerdings zudem leider deren dessen gerne gern"
    " vielen lieber liebe sehr geehrte geehrter guten freundliche eure euer somit dadurch hierbei dabei hierzu dazu"
    " darauf gemäß insbesondere beispielsweise zusätzlich ebenso ebenfalls meist meistens derzeit"
    " aktuell grundsätzlich".split()
)
"""German words that are no name at the start of a sentence."""
_AUXILIARIES = frozenset("ist sind war waren wird werden wurde wurden hat haben bleibt".split())
_VERBS = frozenset(
    "war wurde wird kann muss soll darf will hatte kam ging lag gab schrieb starb fand blieb rief traf lief nahm sprach"
    " sah saß stand trug zog schlug begann gewann hielt ließ fiel wuchs trat bekam verließ".split()
)
_PARTICIPLE = re.compile("ge[a-zäöüß]{2,}(?<!d)t|ge[a-zäöüß]{3,}en|bekannt|berühmt|beteiligt|verheiratet|vorgesehen")
COURTESIES = frozenset("Sie Ihnen Ihr Ihre Ihrem Ihren Ihrer Ihres".split())
"""Pronouns with a capital letter inside a sentence."""
_DETERMINERS = frozenset(
    "der die das den dem des ein eine einer einem einen eines im am zum zur beim vom ins ans dies diese"
    " dieser dieses diesem diesen jede jeder jedes jedem jeden jene jener alle allen viele vielen einige"
    " einigen mehrere mehreren manche kein keine keiner keinem keinen sein seine seiner seinem seinen seines"
    " ihr ihre ihrer ihrem ihren ihres unser unsere unserem unseren unserer mein meine dein deine welche"
    " welcher welches beide beiden zwei drei vier fünf sechs sieben acht neun zehn elf zwölf hundert tausend"
    " etwas nichts viel wenig mehr pro je".split()
)
_PREPOSITIONS = frozenset(
    "in an auf aus bei mit nach von zu für über unter durch gegen ohne um vor hinter neben zwischen seit bis"
    " ab als wie und oder wegen trotz während".split()
)
READERS = frozenset("du dein deine deinem deinen deiner dich dir".split())
"""Pronouns that address a reader."""
_INFLECTIONS = ("e", "en", "er", "es", "em")
_NOUN_ENDINGS = tuple(
    "ung ungen heit heiten keit keiten schaft schaften tion tionen tät täten ismus ment mente nis nisse".split()
)
_HEADS = tuple(
    "dienst dienste dienstes frage fragen daten fehler zeit zeiten teile teilen arbeit arbeiten kraft kräfte stelle"
    " stellen nummer nummern kosten preis preise bericht berichte vertrag verträge antrag anträge betrieb gerät geräte"
    " gruppe liste listen technik wirtschaft schutz verkehr verbrauch wechsel zahl zahlen größe länge system systeme"
    " anlage anlagen leiter leiterin hersteller betreiber betreiberin anbieter sprecher sprecherin inhaber inhaberin"
    " mitglied mitglieder vertreter gründer gründerin besitzer nutzer kunden verfahren programm projekt gesetz stoff"
    " stoffe mittel material maschine maschinen werkzeug fahrzeug fahrzeuge termin termine rechnung lieferung strom"
    " wasser wetter bahn bahnhof flug raum räume zimmer".split()
)
"""Last parts of common compounds ("Kundendienst"), which end no name of a place or person."""
_NOUNS = frozenset(
    "ausfall urlaub datenbank netzwerk internet strom physik chemie mathematik medizin jura philosophie"
    " geschichte informatik jahr jahre jahren tag tage tagen monat monate monaten woche wochen stunde stunden"
    " minute minuten sekunden uhr zeit ende anfang beginn mitte hause haus mensch menschen mann männer frau"
    " frauen kind kinder kindern leute leuten meter metern kilometer kilometern prozent euro dollar million"
    " millionen milliarden einwohner einwohnern wasser luft feuer holz eisen stahl gold silber geld arbeit"
    " leben tod krieg frieden hilfe teil teile teilen beispiel grund gründen fall fälle fällen art form rahmen"
    " laufe bezug folge folgen angaben druck gericht betrieb recht rechte rechts links norden süden osten"
    " westen kunst musik film filme filmen bücher buch studenten schüler schülern gäste besucher kunden"
    " mitarbeiter mitarbeitern daten fehler fehlern server regeln fragen antworten herr herrn doktor professor"
    " platz platze dank basis deutsch englisch französisch mal male abend morgen nacht mittag sommer winter"
    " herbst frühling essen fleisch brot milch bier wein kaffee tee schnee regen erde welt gott könig königin"
    " kaiser präsident kanzler kanzlerin stadt hauptstadt land dorf insel fluss gemeinde firma konzern partei"
    " unternehmen physiker physikerin maler malerin dichter schriftsteller schriftstellerin komponist sänger"
    " sängerin philosoph mathematiker politiker roman oper band verein universität schule kirche museum gmbh"
    " ag kg ev tests dienst dienste logs team teams kollegen vater mutter sohn tochter bruder schwester eltern"
    " ehefrau ehemann".split()
)
"""Nouns that often stand without an article, and nouns in front of a name ("die Stadt Wien")."""
_INSTITUTIONS = tuple(
    "akademie agentur bank behörde feuerwehr grünen hochschule kanzlei kasse klinik linken messe polizei post presse"
    " redaktion werft zeitung".split()
)
"""Last parts of what people are "von", which end no name of a person."""
_ADJECTIVES = frozenset(
    "allgemeinen alten blauen dritten ersten freien großen grünen hohen kleinen neuen offenen roten schwarzen"
    " vereinigten vereinten weißen zweiten".split()
)
_ADJECTIVE_ENDINGS = ("schen", "lichen", "igen", "alen", "ellen", "ären", "iven", "er")
"""Endings of the adjectives in names: "Deutschen", "Berliner"."""


def is_german(small_words: Collection[str]) -> bool:
    """Return True if more of a passage's small words are German function words than English ones."""
    german = len(_MARKS.intersection(small_words))
    return german > 0 and german > len(_ENGLISH_MARKS.intersection(small_words))


def is_determined(words: Sequence[str], start: int) -> bool:
    """Return True if an article, numeral or adjective stands in front of a word: it is a common noun, then.

    Args:
        words: the sentence, without punctuation around its words; an empty word where a comma or bracket stands.
        start: index of the word.

    """
    place = start - 1
    while place >= 0 and words[place].islower() and len(words[place]) > 3 and words[place].endswith(_INFLECTIONS):
        if words[place] in _DETERMINERS:
            return True
        place -= 1
    if place < 0:
        return False
    before = words[place].lower()
    return before in _DETERMINERS or before.isdecimal() or (place < start - 1 and before in _PREPOSITIONS)


def strip_class_noun(name: Sequence[str]) -> Sequence[str]:
    """Drop the common nouns, and small words behind them, in front of a name: "Stadt Wien" becomes "Wien"."""
    start = 0
    while start < len(name) - 1 and (name[start].lower() in _NOUNS or (start and name[start].islower())):
        start += 1
    return name[start:]


def is_institution(word: str, following: str) -> bool:
    """Return True if the words after "von der" name an institution, not a surname.

    A common noun does ("Universität", but not "Vogelweide"), an abbreviation ("ARD"), and an adjective in front of a
    noun ("Deutschen Bahn").

    Args:
        word: the word behind "von der".
        following: the word with a capital letter behind that; empty if there is none.

    """
    small = word.lower()
    is_described = bool(following) and (small in _ADJECTIVES or small.endswith(_ADJECTIVE_ENDINGS))
    is_abbreviation = len(word) > 1 and word.isupper()
    return is_described or is_abbreviation or is_common_noun(word) or small.endswith(_INSTITUTIONS)


def is_participle(word: str, following: str, behind: str = "") -> bool:
    """Return True for what opens a sentence in front of its verb, or of `behind`: "Gebaut wurde", "Wähle die"."""
    is_participle = following in _AUXILIARIES and _PARTICIPLE.fullmatch(word.lower()) is not None
    return is_participle or behind in _DETERMINERS or word.endswith(("mäßig", "weise"))


def follows_imperative(word: str) -> bool:
    """Return True for what may stand behind "Wähle", but is no verb behind "Halle", for its ending."""
    is_verb = word in _VERBS or word.endswith(("t", "te", "en"))
    return word in _PREPOSITIONS or word in _DETERMINERS or (word.islower() and not is_verb)


def is_acronym(word: str) -> bool:
    """Return True for a word with a second capital letter: "SPD", "iPhone", "Max-Planck-Institut"."""
    return sum(map(str.isupper, word)) > 1 and word.lower() not in _NOUNS


def is_common_noun(word: str) -> bool:
    """Return True for a word that is a noun by its ending or its last part, or a frequent one."""
    small = word.lower()
    is_frequent = not _NOUNS.isdisjoint((small, *(small.removesuffix(end) for end in ("e", "en", "n"))))
    return is_frequent or small.endswith(_NOUN_ENDINGS + _HEADS)


def divide_at_articles(cores: Sequence[str], kinds: list[str]) -> None:
    """Let articles divide German names ("Kanzlerin der Republik", "Eva Kern von der Deutschen Bahn").

    "Walther von der Vogelweide" stays whole. Pronouns of courtesy are small words.

    Args:
        cores: the words of a sentence, without punctuation around them.
        kinds: their kinds, as `names` encodes them; those of words that divide are changed.

    """
    following, kinds_behind = [*cores, "", ""], [*kinds, "-", "-"]
    for place, core in enumerate(cores):
        if core in COURTESIES:
            kinds[place] = "-"
        is_described = kinds_behind[place + 1] == "N" and kinds_behind[place + 2] in "NBEX"
        noun = following[place + 2] if is_described else ""
        is_of_name = place > 0 and cores[place - 1] in ("von", "van") and not is_institution(following[place + 1], noun)
        if core in ("der", "den", "des", "das") and not is_of_name:
            kinds[place] = "-"
