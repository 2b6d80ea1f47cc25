"""Words that have a place in a sentence, and no subject of their own."""

ENGLISH = frozenset(
    "a about above according after again all along also although among an and another any are as at be"
    " because before being below besides between both but by can currently despite did do does during each"
    " early either even every few finally first following for former formerly from had has have he her here"
    " hers his how however i if in including inside instead is it its itself just later like many may"
    " meanwhile more moreover most much my near neither nevertheless nor not now of off often on once one only"
    " or other others our out outside over part people per perhaps prior rather several she should since so"
    " some sometimes soon still such than that the their them then there therefore these they this those"
    " though three through throughout thus to today together two under unlike until up upon us using was we"
    " were what when where whereas whether which while who whom whose why will with within without would yes"
    " yet you your".split()
)
"""Function words of English, and adverbs that open a sentence."""
GENERAL = frozenset(
    "according actual actually addition additional another available based best better big bigger biggest"
    " cannot certain concerning could describe describes different due else entire eventually exact exactly"
    " explain general good great important keep kind kinds large larger largest last late less long longer"
    " longest lot lots main major make makes making mention mentions might must new newer newest old older"
    " oldest overall particular possible previous previously really recent recently regarding related"
    " respective respectively same say says second shall similar small smaller smallest special specific"
    " specifically summarize thing things think thinks total type types upcoming use used uses usual usually"
    " various want wants way ways whole".split()
)
"""English words besides these that fit any subject."""
