"""Word lists that tell names from words which have a capital letter for another reason."""

from __future__ import annotations

from importlib.resources import files

from llama_index_gear.function_words import ENGLISH

FUNCTION_WORDS = ENGLISH
"""English words that are never a name, in spite of the capital letter at the start of a sentence."""
OPENERS = frozenset(
    "add ask based born built call called check choose click close compare configure connect contact copy"
    " create delete deploy describe directed disable download dozens edit educated eight eighteen eighth"
    " eighty elected eleven email enable ensure everyone everything featuring fetch fifteen fifth fifty five"
    " fix follow forty founded four fourteen fourth get give go half hence hosted hundred hundreds import"
    " inspect install invite join keep known led let located look make married meet merge message migrate"
    " million millions move named nine nineteen ninety ninth nobody none note nothing notify open owned ping"
    " played please prefer produced publish published pull push raised read reboot released remember remove"
    " rename replace request restart restore retry return revert review rotate run save second see select send"
    " seven seventeen seventh seventy situated six sixteen sixth sixty somebody someone ssh starring start"
    " stop submit switch take tell ten tenth third thirteen thirty thousand thousands try turn twelve twenty"
    " unless update upgrade upload use verify via view visit wait watch whatever whenever wherever whoever"
    " write written".split()
)
"""English participles, imperatives and number words. They open a sentence, in front of a name too ("Ask Ada")."""
COMMON_WORDS = frozenset(
    "abbreviated able academic accepted access account achieved acquired across acted action active activist"
    " activities acts actually adaptation adapted added adding addition additional adherents adjacent"
    " administered administrative administratively adopted afterwards against aged agenda ago aircraft aired"
    " airline album alcohol alert alerts allow allowed almost alongside already always amongst animated"
    " announced annual annually answer apart appear appearance appearances appeared appearing appears appendix"
    " appointed approach approval approve approximately architect architecture archive areas around article"
    " articles aside assign associated assume attach attempt attempts attended attention audience audit author"
    " authorities available average awarded backed background backup backups balance bands basis became become"
    " becomes becoming been began beginning begins begun believed best billion body bomb bonus book border"
    " borders branch briefly broadcast broadcasts broke brother brought bug bugs build buildings builds buried"
    " buses business businessman button buy calls came candidate capacity captured card career carried cast"
    " category cause caused celebrated centered centuries chain change changed changes character characters"
    " charge charts checklist checks children chosen claim claimed claims clean clear clients climate clone"
    " closed closely clubs coach code collaboration comedian comedy comic command commands comment commercial"
    " commercially commissioned commit commonly communities companies compared compete competed competing"
    " competition compilation complete completed components composed composer conceived concept concert"
    " concurrently conducted configuration confirm confirmed conflict connected consecutive considered"
    " consisted consisting consists consolidation constructed construction contacts containers contains"
    " content contested context continue continued continues contract contributed contributions controlled"
    " controversy copies cost costs could countries couple course cousin cover coverage covered covering"
    " covers created creating creator credited credits critic critical current customer customers cut daily"
    " dashboard dashboards data database databases date dates dating daughter deadline deal debt debug debut"
    " debuted decade decades decided decision decisions declared dedicated default defeat defeated defeating"
    " defined degree dependencies dependency depending deployment deployments deploys descent described"
    " description design designated designed designer destroyed detailed details developed developers"
    " development device diagram died different direct directing directly directorial disc discovered distance"
    " distributed districts divided docs document documentary documentation documents done draft drafted drama"
    " drop drummer drums dubbed due dump duo earlier earliest earned economy effect efforts eldest election"
    " elections elements elevation else elsewhere emails employees ended ending engineer engineers enjoy enter"
    " entered entire entirely entitled entries environment environments episode episodes error errors escalate"
    " escalation especially established estimated estimates ethnic event events eventually everybody example"
    " examples except execute existence expanded expansion expect expenses experience export extant extensive"
    " facilities facing fact fail failed failover failure failures families famous fans faq father feature"
    " featured features feet females fictional field fields figures file files fill film filmed filming"
    " filmmaker films find finding finished firm fixes flows focus focused focuses folder followed follows"
    " footballer force forced form formal formally formed forms forward fought found founder founding"
    " franchise freezing frequently friend further gained gave generally genus geographically given giving"
    " glossary goal goals governments gradually graduated graduates grandfather grandson granted grew groups"
    " growing growth guests guide guidelines guitarist handle having headquartered heir held help helped"
    " highest highly him himself hired historian historians historically history hit holding holds holiday"
    " holidays home horror host hosts hours houses husband id idea ids immediately impact implementation"
    " important improvements incident incidents include included includes income increased increasing indeed"
    " individual individuals influence influenced influential info informal information initial initialize"
    " initially inspired installation installment institutions instructions integration intended interest"
    " internal internationally into introduced invoice invoices involved issue issued issues item items job"
    " jobs joined joining journalist key keys killed kilometres km label lands languages large largely larger"
    " largest lasted late latter launched lawyer lead leaders leading least leave left legal legend less level"
    " levels licensed lies lifestyle link links list listed literary lived lives load local locations log"
    " logging logs longer longest losing loss lying lyrics machines made mail mainly maintained maintenance"
    " majority makes making males managed manager manual manufacturer map marked markets marriage martial"
    " match matches material maternal meaning means measuring meeting meetings member members membership"
    " memory merged messages method metres metric metrics migration migrations milestones minutes mitigation"
    " mixed monitor monitoring month monthly months mostly motivation moved moving multiple musician musicians"
    " must name nearby nearly nephew newly newspaper nicknamed nominated nomination nominations normally"
    " notable notably noted notes notice notification novel novelist novels number numbers numerous obtain"
    " occasionally occupied occurred offers officers offices official officially older oldest onboarding"
    " opened opening operated operates operating ordained ordering orders organized origin originally"
    " originated originating output overall overview owing own owner owners package packages page pages"
    " painter painting parameters parents partially participated participation particular particularly partner"
    " parts passed password passwords patch path payment payments peaked percent performances performed period"
    " permission permissions person personal personality phase placed plan planned plans plants platform play"
    " player players playing plays playwright plot poet points policies policy political politician popular"
    " popularity population populous port portion portions ports position positions positive possible post"
    " postmortem powerful practice precipitation premiere premiered prepare prerequisites present presented"
    " presently pressure previous previously primarily primary principal print prints priority probably"
    " problems procedure process produce producer producers producing product products professional"
    " professionally programs project projects prominent promoted proposal proposed provide provided provides"
    " providing provinces publication publisher purchased purpose put queries query question questions queue"
    " quickly quickstart races radar ran ranked rapper rate reach reached reaching readme reality reason"
    " reasons recap receive received receiving recent recently recognition recognized recommended record"
    " recorded refer reference references referred refers refund refunds regarded regards regions regular"
    " reign related relationship relatively release releases religious remain remained remaining remains"
    " remake remembered renamed repeat replaced replication report reported reports repository represent"
    " represented representing represents requests required requirement requirements researchers residential"
    " residents resolution resolve resources respectively response responsible rest result resulted results"
    " retired retro returned returning revealed reviews risks roadmap role roles rollback rollout romantic"
    " rotation roughly rule ruled ruler ruling runbook runs said sales same scale scan scenes schedule"
    " scheduled scope score scored scoring screenwriter script scripts search season seasons seat secret"
    " secrets section security seeing seen selected selling sent separate sequel serial serve served server"
    " servers serves service services serving session set sets setting settings settled settlement setup"
    " severity sexual share shared shift ship ships short shortly shot shown shows siblings sign signed"
    " significant silent similar similarly simply singer singing single sister sitcom size small smaller"
    " snowfall sold solo sometime son song source sources speaking species specific specifically spent split"
    " spoken sponsored spread stage staging stakeholders standard starred started starting state stated"
    " stations status step steps storage stores structure students studied style styled subject subscribe"
    " subsequent subsequently subsidiary suburb succeeded succeeding success successful successor summary sung"
    " support supported supporters surrounding surviving swimming system table tables tag tags taken takes"
    " taking talk tallest target task tasks taught teach teacher team teams tells temperate temperature"
    " temperatures template term terms test testing tests thanks themselves thereafter thought thriller throne"
    " ticket tickets tied time timeline timeout timestamp title titled titles todo took tools total toward"
    " towards towns track tradition traditional traditionally traffic trained training transferred translated"
    " travel tributary trigger troops troubleshooting turned twice type types typical typically ultimately"
    " unable unemployment unincorporated unique unit units unknown updates url usage used user users uses"
    " usually vacation value values variety various vehicles version versions very victory video violation"
    " virtually visa visitors vocalist vocals voiced volume vote voted votes warning warnings website weekly"
    " weeks welcome well went whilst whole wide widely widespread wife win winner winning wins won words work"
    " worked worker workers workflow working works worldwide writer writing wrote years youngest".split()
)
"""Other common English words. More than nine in ten of the uses of most of them inside a sentence are small."""
DEMONYMS = frozenset(
    "african american arab argentine asian australian austrian belgian brazilian british buddhist bulgarian"
    " canadian catholic chilean chinese christian colombian croatian cuban czech danish democratic dutch"
    " egyptian english ethiopian european filipino finnish french german greek hindu hispanic hungarian icelandic"
    " indian indonesian iranian iraqi irish islamic israeli italian japanese jewish kenyan korean latin latino"
    " malaysian mexican muslim nigerian norwegian pakistani persian peruvian polish portuguese protestant"
    " republican roman romanian russian scottish serbian soviet spanish swedish swiss thai turkish ukrainian"
    " vietnamese welsh".split()
)
"""Adjectives with a capital letter: alone they are no names, and would join unrelated passages."""
CONNECTORS = frozenset(
    "& bin da das de del della den der des di do dos du el for la las le los of the van von zu".split()
)
"""Small words inside a name."""
ABBREVIATIONS = frozenset(
    "adm al approx apr aug bros bzw ca capt co col corp dec dr ed evtl feb fig ft geb gen gest ggf gov hon"
    " inc inkl jan jh jr jul jun lt ltd maj mar mr mrs ms mt no nos nov nr oct pres prof rep rev sen sep sept"
    " sgt sr st ste str tel usw vgl vol vs".split()
)
"""Words whose full stop ends no sentence."""
NAME_TITLES = frozenset("capt dr gov lt mr mrs ms prof rev sgt".split())
"""Abbreviations with a name behind them, be it a small word ("Dr. Who")."""
CALENDAR = frozenset(
    "apr april aug august dec december dezember dienstag donnerstag feb februar february freitag fri friday"
    " fridays jan januar january jul juli july jun june juni mai mar march may mittwoch mon monday mondays"
    " montag märz nov november oct october oktober samstag sat saturday saturdays sep sept september sonnabend"
    " sonntag sunday sundays thu thursday thursdays tue tuesday tuesdays wed wednesday wednesdays".split()
)
"""Months and days: alone they are no names; with a number they are a date."""
OTHER_LANGUAGES = frozenset(
    "avec ce ces cette con dans een el ela ele ella elle elles em en er es est gli het hij ihr il ils las les"
    " lo los met na no op os para por pour ses sie son su sur sus uma una une voor wij wir zij"
    " ja não nein oui sí sim".split()
)
"""Words that open sentences in other languages, and are no names alone."""
LITERALS = frozenset(
    "bool boolean bytes char dict double false fixme float int int32 int64 integer long nan nil none null number object"
    " str string tbd todo true undefined uint void".split()
)
"""Values, types and marks in code, which are no names."""
HYPHENATED = frozenset(
    "air all anti art auto aware away back bas best bi box brother center centre chief city class co counter"
    " cross cyber daughter day days de dis down driven dual east eastern eco editor eight end ever ex extra"
    " far fast father fifth first five four free front full general granddaughter grandson great ground half"
    " hard heavy hi high higher home hour hyper ill in inner inter intra jiu late law left level life like"
    " limited line little live long loose low lower macro made man mass medium mega meta micro mid middle mini"
    " modern mono month mother multi near neo new night nine ninth no non north northeast northern northwest"
    " off old old on once one only open out outer over para part party past peer per point poly poor pop post"
    " power pre present prime pro prone pseudo quarter quasi quick rate re ready real right rock run scale sci"
    " science sea second self semi seven seventh short side singer single sister six sixth slow small so socio"
    " soft solo son south southeast southern southwest stage star state step stop sub super ten term third"
    " three time top trans true turn twelve twentieth twenty twin two ultra under uni up upper vice war water"
    " wave weather week well west western whole wide world writer year years zero".split()
)
"""Parts of ordinary words with a hyphen."""
HEADING_WORDS = frozenset(
    "abstract acknowledgments acknowledgements actions activities advanced afterwards agenda aliases api app"
    " apps appendix approach appearances art arts authors award awards background basics benefits bibliography biology"
    " book books bugs careers cast cause causes changelog checklist cli climate club clubs code colors"
    " compatibility competitions conclusion concepts consequences contact contents context costs credits crew criticism"
    " culture custom data deep defaults demographics dependencies design details discussion dive errata"
    " ethics etymology examples exceptions extras facts faqs fauna features fees filmography findings flora"
    " follow-up footnotes future games geology glossary goals handover hardware highlights hints history honors honours"
    " how-to impact initials inputs internals intro itinerary lessons license links litigation lore manual mechanics"
    " media metadata methods misc models motivation music names notes objectives optional options outcome"
    " outcomes outline outlook outputs overview participants people personnel pitfalls plans politics preface privacy"
    " problem problems pros cons prototypes qa quick quirks rates rationale reception remark remarks results review"
    " risks roster route routes rules samples scenarios schema schemas scores sidebar singles solution solutions"
    " sponsors staff stats strategies summary support swap symptoms synopsis syntax team templates themes"
    " theory timelines tips"
    " toc todos tools topics tour tours trivia tutorial tutorials use validation variables venue videos views"
    " vision web workaround workarounds".split()
)
"""More words that head sections of any document."""
LEGAL_FORMS = frozenset(
    "ag bv co corp corporation gmbh inc kg limited llc llp ltd nv oy plc pty sa sarl spa srl".split()
)
"""Legal forms: alone, behind a comma, they are no names."""
OFFICE_WORDS = frozenset(
    "accessories accuracy active adjust administrator amount approval approve approved assigned attached attachment"
    " audit availability bandwidth battery billing budget calibration capacity cheers color colour compatible component"
    " components compliance confirm confirmed connector consumption contract contracts converted copied cpu currency"
    " current customer customers deadline dear delivered delivery department depth diameter dimensions disk duration"
    " employee employees enclosure enforce explicit explicitly extension fax feedback fixed flow forwarded fragile"
    " frequency fyi greetings group hardware heating height hello hey hi humidity inbound indemnity input insured"
    " inventory latency latest length liability license lifetime looking lost manufacturer material materials"
    " mode model motor mounting network noise nominal notwithstanding obligations operating outbound output"
    " packaging parties payable pending permitted phone physical pinned pipeline please power pressure pricing product"
    " proper properly property protection provided purchase pursuant quality quantity range rated rating recipient"
    " regards rejected remarks rent reply requested resistance resolution resolved responsibilities restarted return"
    " returned revised rights running safety sample scope sender sensor serial shall shipping signal"
    " signature sincerely sku software spare speed staff stock storage subject supplier suppliers supply"
    " telephone tenant termination text thank throughput tolerance torque transport ups vendor vendors"
    " voltage warehouse warranty weight whereas width wiring yours".split()
)
"""Words of letters, contracts and data sheets, which open sentences and cells of tables."""
_INSTRUCTIONS = frozenset(
    "access activate append authenticate back browse cancel check clear click clone compile compute copy customize"
    " debug decrypt deprecate deploy disable discard display download drag drop duplicate embed emit encrypt"
    " escape"
    " evaluate expand export filter format generate hide highlight hover implement import increase initialize insert"
    " install integrate invoke launch list load locate log merge minimize move navigate open optimize override parse"
    " paste pin preview print process reboot redirect refactor refresh register reload rename reopen reorder reset"
    " resize resolve restart retrieve return reuse revert run save scan scroll search select serialize show simplify"
    " skip sort specify split switch sync tap toggle transform tweak uninstall unlock unzip update upgrade upload"
    " validate verify view wrap".split()
)
"""Verbs of manuals, which older books don't have or have as nouns."""


def _third_person(verb: str) -> str:
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "sh", "ch", "x", "z")) else f"{verb}s"


def list_stems(word: str) -> list[str]:
    """Return the possible base forms of a verb in the third person ("specifies", "processes", "creates")."""
    return [
        word,
        *(word.removesuffix(end) + stem for end, stem in (("s", ""), ("es", ""), ("ies", "y")) if word.endswith(end)),
    ]


_LIST = files("llama_index_gear.extraction").joinpath("english_words.txt").read_text(encoding="utf-8")
_ENTRIES = [entry for line in _LIST.splitlines() if line[0] != "#" for entry in line.split()]
ENGLISH_WORDS = frozenset(entry.removesuffix("*") for entry in _ENTRIES).union(
    _INSTRUCTIONS, map(_third_person, _INSTRUCTIONS), "comma creates dev directories outputs".split()
)
"""English words that are small inside a sentence."""
IMPERATIVES = _INSTRUCTIONS.union(entry[:-1] for entry in _ENTRIES if entry[-1] == "*")
"""Those of them, adverbs and imperatives, that begin no name ("Recently Nora Blum")."""
