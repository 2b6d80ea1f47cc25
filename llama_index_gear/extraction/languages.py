"""Names by language and script: what opens a sentence and is none, and what marks one where there are no capitals.

Function words are of languages with capital letters, but English and German. Chinese, Japanese, Arabic, Hebrew, Hindi
and others have none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from llama_index_gear.extraction import german
from llama_index_gear.extraction.words import COMMON_WORDS, ENGLISH_WORDS, FUNCTION_WORDS, OFFICE_WORDS, OPENERS

_ENGLISH = frozenset(
    "the of and to is was with for on by as at from that which his her their are were it this be an or not has have"
    " had but they we you he she its in a as do no so me more than over after later want our when who into".split()
)
"""English function words. One that another language has too is evidence for neither."""
_LEAST_WORDS = 2
"""Different function words that a passage of a language has at least."""


class Language(NamedTuple):
    """A language: its function words.

    Attributes:
        openers: function words that are no name at the start of a sentence.
        particles: its prepositions and articles. What stands in front of one at the start of a sentence is a verb, a
            participle or an adverb, unless the passage has it as a name elsewhere ("Nació en Bogotá").
        has_elision: True if articles lose their vowel in front of another ("l'École").
        dividers: small words that are part of names elsewhere, and here part them.
        readers: pronouns that address a reader. In a text that has one, what opens a sentence in front of a function
            word, but for a verb, is taken for an imperative ("Ouvrez votre page", not "Renault vend").

    """

    openers: frozenset[str]
    particles: frozenset[str]
    has_elision: bool = False
    dividers: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()

    def is_opener(self, word: str, following: str, second: str, small_words: Collection[str]) -> bool:
        """Return True for a word that opens a sentence and is a verb or an adverb: for its form, or what is behind it.

        Args:
            word: the word, in small letters.
            following: the word behind it; "" if there is none, or a comma parts them.
            second: the word behind that; "" if there is none.
            small_words: those of the passage.

        """
        ending = "lijk" if _THAT.isdisjoint(self.openers) else _ADVERBS  # "lijk" is Dutch
        is_adverb = len(word) > _LONGEST_NAME and word.endswith(ending)
        may_be_imperative = following in (self.openers | self.readers) - _OF_SUBJECTS
        is_imperative = may_be_imperative and not self.readers.isdisjoint(small_words)
        is_verb = following in _DETERMINERS & self.openers
        is_noun = following in _OF and second.islower() and not _THAT.isdisjoint(self.openers)
        return is_adverb or is_imperative or is_verb or is_noun or following in self.particles or following in _THAT


_ADVERBS = ("mente", "ment")
"""Endings of adverbs of French, Spanish, Portuguese and Italian ("Attualmente Nora Blum …")."""
EMPHASISED = frozenset("no não non nunca siempre sempre mai jamais toujours nooit altijd niet niente nada".split())
"""Function words that people write in capitals inside a sentence ("NUNCA")."""
_THAT = frozenset(("que", "che"))
"""A function word of each of these four languages, and of no other."""
_OF = frozenset(("de", "di"))
"""Prepositions that join two nouns in these: a noun in front of one and small words is common ("Rol de red")."""
_DETERMINERS = frozenset(
    "deux trois quatre cinq dix plusieurs dos tres cuatro cinco diez varios varias otros otras algunos algunas dois"
    " duas três quatro dez vários outros outras alguns algumas due tre quattro cinque dieci altri altre alcuni alcune"
    " twee drie vier vijf tien andere sommige verschillende".split()
)
"""Numerals and the like: in front of one, what opens a sentence is a verb ("Existen varios …")."""
_LONGEST_NAME = 8  # "Clemente", "Clément"
_OF_SUBJECTS = frozenset(
    "est sont était étaient a ont avait es son era eran fue ha han está están tiene tienen puede debe é são foi tem"
    " pode deve è sono fu hanno può is was waren werd wordt heeft hebben had moet kunnen peut doit был была есть будет"
    " может ne no não non nicht niet не".split()
)
"""Verbs among the function words, and what negates one: what stands in front is their subject."""


def _make_language(
    particles: str, others: str, readers: str, *, has_elision: bool = False, dividers: str = ""
) -> Language:
    first = frozenset(particles.split())
    of_readers = frozenset(readers.split())
    return Language(first | frozenset(others.split()), first, has_elision, frozenset(dividers.split()), of_readers)


_LANGUAGES = (
    _make_language(  # French
        "à au aux dans en par pour sur sous avec sans chez vers entre depuis pendant le la les un une des du",
        "de et ou mais donc or ni car que qui quoi dont où quand comment pourquoi combien lorsque puisque comme si ce"
        " cet cette ces celui celle ceux celles cela ceci il elle ils elles on nous vous je tu se son sa ses leur leurs"
        " mon ma mes notre nos votre vos est sont était étaient a ont avait fut été être ne pas plus aussi ainsi alors"
        " après avant cependant toutefois néanmoins pourtant ensuite puis enfin d'abord aujourd'hui hier demain"
        " actuellement selon malgré grâce afin bien plusieurs certains chaque tout tous toute toutes aucun aucune deux"
        " trois quatre cinq dix voici voilà bonjour merci madame monsieur cordialement né née nés nées parmi contre"
        " durant dès jusque très même lui y peut peuvent pouvez pouvons doit doivent devez devons"
        " faut permet permettent oui jamais toujours",
        "vous votre vos tu ton tes",
        has_elision=True,
    ),
    _make_language(  # Spanish
        "en con por para a al desde hasta sin sobre entre hacia como el la los las un una unos unas del",
        "de y e o u pero sino que quien quién quiénes qué cuál cuándo cuando dónde donde cómo cuánto porque aunque si"
        " este esta estos estas ese esa esos esas eso esto aquel él ella ellos ellas ello nosotros usted ustedes yo tú"
        " su sus mi mis nuestro nuestra lo le les se es son era eran fue fueron ha han había no ni más muy ya también"
        " además después antes entonces luego ahora hoy ayer mañana sin embargo según durante mientras tras mediante"
        " actualmente finalmente posteriormente así aquí allí todo todos toda todas cada otro otra otros otras algunos"
        " algunas varios dos tres cuatro cinco diez hola gracias estimado estimada señor señora saludos hay está están"
        " nacido nacida contra hace sólo solo tanto puede pueden puedes podemos debe deben debes debemos hacen haz"
        " tiene tienen tienes permite permiten sí caso nunca siempre nada",
        "tu tus te tú usted ustedes puedes tienes debes",
    ),
    _make_language(  # Portuguese
        "em no na nos nas com por para ao aos à às pelo pela pelos pelas desde até sem sobre entre como o a os as"
        " um uma uns umas do da dos das",
        "de e ou mas que quem qual quando onde porque embora se este esta estes estas esse essa esses essas isso isto"
        " aquele ele ela eles elas nós você vocês eu seu sua seus suas meu minha lhe é são era eram foi foram tem têm"
        " não nem mais muito já também além depois antes então agora hoje ontem amanhã porém contudo entretanto segundo"
        " durante enquanto após atualmente finalmente posteriormente assim aqui ali tudo todo todos toda todas cada"
        " outro outra outros outras alguns algumas vários dois duas três quatro cinco dez olá obrigado prezado senhor"
        " senhora há está estão nascido nascida contra pode podem podemos deve devem devemos faz fazem tem temos"
        " permite permitem sim caso nunca sempre nada",
        "você vocês tu teu tua",
    ),
    _make_language(  # Italian
        "in nel nella nello nei nelle nell a ad al alla allo ai alle con per da dal dalla dallo dai dalle su sul sulla"
        " tra fra come il lo la i gli le un uno una del della dello dei delle",
        "di e ed o ma che chi cui quale quando dove come perché poiché sebbene se questo questa questi queste quello"
        " quella quelli quelle ciò egli lui lei essi loro noi voi io tu si suo sua suoi sue mio mia nostro nostra"
        " è sono era erano fu furono ha hanno aveva non né più molto già anche inoltre dopo prima poi allora adesso"
        " oggi ieri domani tuttavia però secondo durante mentre infine attualmente successivamente così qui lì tutto"
        " tutti tutta tutte ogni altro altra altri altre alcuni alcune due tre quattro cinque dieci ciao buongiorno"
        " grazie gentile signor signora saluti ci c'è nato nata nati contro senza verso presso può possono puoi"
        " possiamo deve devono devi dobbiamo fanno fai vai permette permettono sì caso mai sempre niente",
        "tu tuo tua tuoi tue ti puoi devi vuoi",
        has_elision=True,
        dividers="da",
    ),
    _make_language(  # Dutch
        "in op aan bij met naar voor van uit door over onder tegen tussen om tot de het een te",
        "en of maar want dat die dit deze wie wat waar wanneer hoe waarom omdat hoewel als hij zij ze wij we jij je"
        " u ik er zijn haar hun mijn ons onze is was waren werd werden wordt worden heeft hebben had niet geen meer"
        " zeer al ook bovendien daarna daarom daar hier later toen dan nu vandaag gisteren morgen echter volgens"
        " tijdens terwijl na sinds vanaf momenteel uiteindelijk zo alle elke andere sommige veel verschillende twee"
        " drie vier vijf tien hallo beste bedankt dank geachte mevrouw meneer geboren tegenwoordig vanwege ondanks kunt"
        " kunnen moet moeten mogen zullen willen nee niet nooit altijd vervolgens destijds"
        " helaas ondertussen tevens overigens uiteraard"
        " voeg voer maak soms gelukkig meestal binnenkort",
        "je jij jouw u uw",
    ),
    _make_language(  # Russian
        "в во на с со из к ко по о об обо у от до для при за под над без через между перед",
        "и а но или что кто который которая где когда как почему если хотя потому он она оно они мы вы я ты его её их"
        " ему ей им мой наш свой этот эта эти это тот та те то был была было были есть будет не ни же бы ли уже ещё"
        " также тоже затем потом после тогда теперь сегодня вчера завтра однако сейчас здесь там все всё весь каждый"
        " другой другие некоторые многие два две три четыре пять десять во-первых согласно во время благодаря поэтому"
        " кроме пока наконец впоследствии здравствуйте привет спасибо уважаемый уважаемая около среди может могут можно"
        " нужно должен должны надо да нет",
        "вы вас вам ваш ваша ваши ваше ты твой тебе",
    ),
)

_ELISION = re.compile(
    r"(?:[ldjmnstc]|qu|lorsqu|puisqu|jusqu|(?:d|n|s)?[aeou]ll|nell|un)['’](?=\w)",
    re.IGNORECASE,
)


_FOREIGN = {
    name: frozenset(words.split())
    for name, words in {
        "Swedish": "och att det som en på är av för med till inte om ett han hon var jag från den har vid sig när hade"
        " därefter sedan dessutom tyvärr slutligen senare idag enligt under",
        "Norwegian or Danish": "og det som en på er av for med til ikke om et han hun var jeg fra den har ved"
        " seg sig når blev ble også efter etter",
        "Finnish": "ja on ei että se oli hän mutta kun niin myös joka ovat sen kanssa jälkeen vuonna"
        " olla tai kuin mitä"
        " sitten lisäksi kuitenkin nykyään myöhemmin lopulta aluksi silloin",
        "Estonian": "ja on ei et see oli ta aga kui ka mis kes oma ning või siis välja pärast aastal nii",
        "Icelandic": "og að það sem er á í var ekki við um en til með hann hún fyrir frá hefur",
        "Polish": "i w na z się do nie jest że to o jak po co od za przez dla był była są ale oraz"
        " który która przy tym jego"
        " następnie ponadto potem później wtedy obecnie dlatego jednak podczas wczoraj",
        "Czech or Slovak": "a v na se že je to s z do o k i jak po který která byl byla jsou ale nebo od pro"
        " při jako by sa som nie ako aj bol bola"
        " poté potom navíc bohužel nakonec během později tehdy dnes pokud",
        "Slovenian": "in je na se da za v ki so z pa po iz tudi kot bil bila ni ali pri od",
        "Croatian or Serbian": "i je u na se da za od su s koji koja kao iz bio bila nije ali ili po do što sa",
        "Hungarian": "a az és hogy nem is egy van volt meg de ez csak már mint vagy ki azt még után aki amely"
        " később ezután emellett azonban végül ekkor jelenleg például miután ha",
        "Romanian": "și şi în de la cu pe nu că este a din un o pentru care mai au fost sau după dar lui prin"
        " apoi ulterior atunci astăzi totuși deși dacă",
        "Turkish": "ve bir bu da de için ile olarak çok daha olan gibi sonra kadar ne ya değil var ama o en yılında"
        " ayrıca ardından ancak bugün böylece özellikle eğer önce",
        "Greek": "και το να του η την της με τον που στο στη από για ο οι τα είναι δεν θα σε στην των ήταν ως",
        "Ukrainian": "і та в у на що не з до як за це він вона але від або є був була про його їх після також",
        "Bulgarian": "и на в да се от за не с по са като е че това той тя но до към след който при",
        "Lithuanian": "ir yra kad į iš su tai ne bet kaip buvo jis ji nuo per po apie dar jau",
        "Latvian": "un ir ka ar no uz par bet kā arī tika bija viņš viņa pēc tas kas gan vai",
        "Catalan": "i de la el que els en les per amb és un una va no del dels al als però com més també seva aquest"
        " això era ha a pel",
        "Vietnamese": "và của là có được trong cho một những người này với các đã không ở về từ khi để",
        "Indonesian or Malay": "dan yang di itu dengan untuk dari dalam tidak ini pada akan ke oleh adalah juga"
        " telah karena sebagai tahun saya dia",
        "Tagalog": "ang ng sa na mga ay at ito para siya hindi niya ni kay nang isang",
        "Swahili": "na ya wa kwa ni katika la za cha kuwa hii lakini alikuwa yake huo",
        "Albanian": "dhe në të e një për me që është si nga ka u por ishte më edhe",
        "Latin": "et in est non ad ut cum sed qui quae quod ex de ab per esse sunt eius atque nec sit enim autem aut ac"
        " quam vel nunc dolor amet ipsum elit eget nulla",
        "Welsh": "yn y yr a i ar o mae ei oedd am fel gan wedi ac bod nid",
        "Basque": "eta da bat ez zen izan du hau ere baina dira baino edo",
    }.items()
}
"""Frequent words of languages that have no rules here."""
_ALL_FOREIGN = frozenset().union(*_FOREIGN.values())
_FOREIGN_LETTERS = re.compile("[ąćęłńśźżčďěňřšťůžőűășşțţğışāēģīķļņūėįųđåøæþð]")
"""Matches a letter that no language with rules has."""
_LEAST_FOREIGN = 3
"""Different frequent words that a passage of such a language has at least."""

_SHARED = FUNCTION_WORDS | _ENGLISH
"""Words that are no evidence for a language without rules."""
_KNOWN = _SHARED | ENGLISH_WORDS | COMMON_WORDS | OPENERS | OFFICE_WORDS
_LEAST_UNKNOWN = 4
"""Different small words, of which a quarter or more are English, or the passage is in another language."""
_PUNCTUATION = ".,;:!?()\"'“”„«»"
_CERTAIN = 6
"""Different English function words that make a passage English."""


class Speech(NamedTuple):
    """The language of a passage, told by its small words.

    Attributes:
        small_words: its words without capital letters, with their punctuation.
        foreign: the language, if there are no rules for it; "" if there are.
        is_german: True for German.
        language: the language; None for English, German, and those without rules.

    """

    small_words: frozenset[str]
    foreign: str
    is_german: bool
    language: Language | None

    @property
    def is_english(self) -> bool:
        """True if nothing speaks for another language."""
        return not (self.is_german or self.foreign or self.language)


def list_frequent_words(language: str) -> Collection[str]:
    """Return frequent words of a language without rules, as `find_foreign` names it; of all if it is another."""
    return _FOREIGN.get(language, _ALL_FOREIGN)


def tell_language(text: str) -> Speech:
    """Tell the language of a passage."""
    small_words = frozenset(word for word in text.split() if word.islower())
    foreign = find_foreign(small_words)
    language = None if foreign else find_language(small_words)
    others = len(language.openers & small_words) if language else 0  # "es" is Spanish, too
    is_german = not foreign and german.is_german(small_words) and len(german.FUNCTION_WORDS & small_words) >= others
    return Speech(small_words, foreign, is_german, None if is_german else language)


def find_foreign(small_words: Collection[str]) -> str:
    """Return the language without rules that a passage's small words are of; "" if it is none.

    It is one that most of them are frequent in, or "another language" if few of them are English.
    """
    if len(_ENGLISH.intersection(small_words)) >= _CERTAIN:
        return ""
    counts = {name: len(words.intersection(small_words) - _SHARED) for name, words in _FOREIGN.items()}
    name = max(counts, key=counts.__getitem__)
    own = _FOREIGN[name].intersection(small_words)
    others = (_ENGLISH, german.FUNCTION_WORDS, *(language.openers for language in _LANGUAGES))
    lettered = sum(not word.isascii() and _FOREIGN_LETTERS.search(word) is not None for word in small_words)
    if lettered > 1 and lettered * 10 > len(small_words):
        return name if counts[name] > 1 else "another language"
    if counts[name] >= _LEAST_FOREIGN and all(
        len(own - other - _SHARED) > len(other.intersection(small_words) - own) for other in others
    ):
        return name
    if find_language(small_words) is not None or german.is_german(small_words):
        return ""
    plain = [word for word in (word.strip(_PUNCTUATION) for word in small_words) if word.isalpha()]
    is_foreign = len(plain) >= _LEAST_UNKNOWN and len(_KNOWN.intersection(plain)) * 4 < len(plain)
    return "another language" if is_foreign else ""


def find_language(small_words: Collection[str]) -> Language | None:
    """Return the language that most of a passage's small words are function words of; None for English and others."""
    counts = [len(language.openers.intersection(small_words)) for language in _LANGUAGES]
    most = max(counts)
    is_known = most >= _LEAST_WORDS and most > len(_ENGLISH.intersection(small_words))
    return _LANGUAGES[counts.index(most)] if is_known else None


def strip_elision(word: str) -> str:
    """Drop the article or preposition that has lost its vowel: "l'École" becomes "École", "dell'Adda" "Adda"."""
    return _ELISION.sub("", word, count=1) if _ELISION.match(word) else word


_MAX_QUOTATIONS = 200  # quotations of a passage that are looked for once more

_CASELESS = "\u0590-\u109f\u10d0-\u10ff\u1100-\u139f\u1700-\u18af\u3040-\ua4cf\uac00-\ud7ff\uf900-\ufdff\ufe70-\ufeff"
_WIDE = f"{_CASELESS}\u3000-\u303f\uff00-\uff0f\uff1a-\uff20"  # with the punctuation that stands without a space

_CASELESS_LETTER = re.compile(f"[{_CASELESS}\U00020000-\U0003ffff]")
BORDER = re.compile(f"(?<=[{_WIDE}])(?=[A-Za-z0-9À-ɏ])|(?<=[A-Za-z0-9À-ɏ])(?=[{_WIDE}])")
"""Matches the border between Latin letters and others: Chinese and Japanese write none."""
_INNER = "[^《》〈〉『』「」“”«»。！？!?，,、：:；;؟،]"
_TITLE = re.compile(f"《({_INNER}{{1,40}})》|〈({_INNER}{{1,40}})〉|『({_INNER}{{1,40}})』")
_QUOTED = re.compile(f"「({_INNER}{{1,20}})」|“({_INNER}{{1,20}})”|«({_INNER}{{1,20}})»")
_KATAKANA = re.compile("[ァ-ヺー]{1,30}(?:[・＝][ァ-ヺー]{1,30}){1,7}")


def is_caseless(text: str) -> bool:
    """Return True if a third or more of a text's letters are of scripts without capital letters."""
    if text.isascii():
        return False
    found = len(_CASELESS_LETTER.findall(text))
    return found > 0 and 3 * found >= sum(map(str.isalpha, text))


def find_recurring_quotations(text: str) -> set[str]:
    """Return what a passage quotes in 「…」, “…” or «…», and has once more: a quotation alone may be speech."""
    quoted = dict.fromkeys(match[match.lastindex or 0].strip() for match in _QUOTED.finditer(text))
    return {name for name in islice(quoted, _MAX_QUOTATIONS) if name and text.count(name) > 1}


def find_marked_names(sentence: str, recurring: Collection[str]) -> Iterator[tuple[int, str]]:
    """Find names that punctuation marks in a sentence without capital letters.

    They are titles of works (《…》, 〈…〉, 『…』), quotations that recur, and foreign names in Katakana with a
    dot between their parts.

    Args:
        sentence: the sentence.
        recurring: quotations that the passage has more than once.

    Yields:
        Where the name starts in the sentence, and the name.

    """
    for pattern in (_TITLE, _QUOTED, _KATAKANA):
        for match in pattern.finditer(sentence):
            name = match[match.lastindex or 0].strip()
            if name and (pattern is not _QUOTED or name in recurring):
                yield match.start(), name
