//! Names that definitions in the product must not use again.
//!
//! ```text
//!   fn met(..)    struct Life    Early(..)   --> name --> in the table, in this part of the tree? a finding
//! ```
//!
//! [`glossary`](crate::glossary) forbids words everywhere. The names here are ordinary English in a
//! sentence, but say nothing as the name of a function or type.

use crate::glossary;

/// An old name, its replacement, and the parts of the tree that the row applies to; none: the whole
/// product.
type Row = (&'static str, &'static str, &'static [&'static str]);

const NAMES: &[Row] = &[
    // Functions.
    ("anew", "reopen", &[]),
    ("ascribe", "assign_remote", &[]),
    ("ask_namesakes", "ping_remotes_named", &[]),
    ("attend", "lock_for_poll", &[]),
    ("bequeath", "charge_to_tombstone", &[]),
    ("bury", "drop_empty_tombstones, remove_link", &[]),
    ("come", "a verb and its object: on_introduction", &[]),
    ("dissolve", "remove_remote", &[]),
    ("estrange", "detach_op", &[]),
    ("excuse", "exclude_pause", &[]),
    ("heed", "apply_credit_fields, handle_control", &[]),
    ("is_chance", "is_random_loss", &[]),
    ("is_dire", "is_critical", &[]),
    ("lead", "sleep_as_progress_thread", &["mx-sys/"]),
    ("leave_rest", "save_partial_packet", &[]),
    ("line_up", "enqueue_send", &[]),
    ("look_around", "poll_quiet_ports", &[]),
    ("means", "can_afford", &[]),
    ("meet", "set_connected", &["mx-proto/src/remote.rs"]),
    ("met", "connected", &["mx-proto/src/remote.rs"]),
    ("met_mut", "connected_mut", &[]),
    ("met_on", "meeting_link", &[]),
    ("mourn", "record_death", &[]),
    ("send_what", "send and its object", &[]),
    ("stand_down", "suspend_helper", &[]),
    ("stays", "decline_move", &[]),
    ("unmet", "pre_connect", &[]),
    ("unstrange", "unlist_stranger", &[]),
    // Types and variants.
    ("Abandoned", "CancelledReceives", &[]),
    ("Becoming", "NewOperation", &[]),
    (
        "Beside",
        "PersistentState",
        &["src/", "mx-sys/", "myriexpress/"],
    ),
    ("Bodies", "BodyPool", &[]),
    ("Broken", "LinkFailure", &["ports/tcp/"]),
    ("ByBits", "MatchTable", &[]),
    ("ByRemote", "RemoteLists", &[]),
    ("Dire", "Critical", &[]),
    ("Express", "ConnectedSocket", &[]),
    ("Fall", "UndoState", &[]),
    ("FrameTurn", "FrameOrder", &[]),
    ("Greets", "GreetingRole", &[]),
    ("Handout", "NextUnexpected", &[]),
    ("Heard", "ReadOutcome, FrameEffect", &[]),
    ("Here", "LocalAddressIndex", &[]),
    ("Into", "BodyDestination", &[]),
    ("Kin", "Remote", &[]),
    ("Landing", "BounceTarget", &[]),
    ("Life", "RemoteState", &[]),
    ("Met", "Connected", &[]),
    ("Midway", "PartialSend", &[]),
    ("NoMove", "MoveRefusal", &[]),
    ("OpenAnew", "ReopenOptions", &[]),
    ("Paid", "Payment", &[]),
    ("PeerPlace", "NetworkId", &[]),
    ("Reach", "LinkLimits", &[]),
    ("Say", "CreditMessage", &[]),
    ("Slept", "SleepOutcome", &[]),
    ("Sort", "RequestKind", &[]),
    ("Spent", "UsedCookies", &[]),
    ("Spoken", "LocalAddresses", &[]),
    ("Stand", "QueuePosition", &[]),
    ("Standing", "ProviderRank", &[]),
    ("Strand", "ListKind", &[]),
    ("Telling", "NotificationGuard", &[]),
    ("There", "Remote, SendTarget", &[]),
    ("Told", "ReadyTokens", &["mx-sys/"]),
    ("TooFew", "DescriptorShortage", &[]),
    ("Trouble", "SlotError, FallbackReason", &[]),
    ("Unmatched", "ArrivalPolicy", &[]),
    ("Unslept", "SleepError", &[]),
    ("Vitals", "TcpHealth", &[]),
    ("What", "the kind of what: WaitingKind", &[]),
    ("Whose", "CompletionTarget", &[]),
    ("Withheld", "RemoteUnavailable", &[]),
    ("Word", "OpData", &["src/", "mx-proto/", "myriexpress/"]),
    ("Words", "ProofTranscript", &["mx-proto/"]),
];

/// The crates of the product.
const PRODUCT: &[&str] = &[
    "src/",
    "libraries/",
    "libfabric-sys/",
    "mx-proto/",
    "mx-sys/",
    "myriexpress/",
    "ports/",
];

/// Directories and files of tests inside these crates.
const TESTS: &[&str] = &["/tests/", "/benches/", "/examples/", "/loom/", "tests.rs"];

/// Returns the name that a line defines: of a function, type, constant or module, or of a field or
/// variant that begins the line.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let word = |text: &str| text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    let mut rest = match line.strip_prefix("pub") {
        Some(rest) => match rest
            .strip_prefix('(')
            .and_then(|rest| rest.split_once(") "))
        {
            Some((_, rest)) => rest,
            None => rest.trim_start(),
        },
        None => line,
    };
    const BEFORE: &[&str] = &["async ", "unsafe ", "const ", "extern \"C\" ", "static "];
    const KINDS: &[&str] = &[
        "fn ", "struct ", "enum ", "trait ", "type ", "mod ", "union ",
    ];
    let mut keyword = false;
    while let Some(after) = BEFORE.iter().find_map(|it| rest.strip_prefix(it)) {
        (rest, keyword) = (after, true);
    }
    if let Some(after) = KINDS.iter().find_map(|it| rest.strip_prefix(it)) {
        (rest, keyword) = (after, true);
    }
    let end = word(rest).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    let capital = name.starts_with(|c: char| c.is_uppercase());
    let field = after.starts_with(": ") && !capital;
    // Matches `Early(EntryId),`, `Whole { .. }` and `None,`, but not `Early(id) => ...` or a call.
    let variant = capital
        && (after == ","
            || after.ends_with(',') && after.starts_with(['(', ' ']) && !after.contains("=>")
            || after == " {");
    (!name.is_empty() && (keyword || field || variant)).then_some(name)
}

/// Returns the replacement of a name that is defined in this file, if it has one.
fn better(path: &str, name: &str) -> Option<&'static str> {
    let applies =
        |within: &[&str]| within.is_empty() || within.iter().any(|begin| path.starts_with(begin));
    let row = |row: &&Row| row.0 == name && applies(row.2);
    NAMES.iter().find(row).map(|row| row.1)
}

#[test]
fn private_names_are_not_defined_again() {
    let (mut definitions, mut findings) = (0, String::new());
    for (name, text) in glossary::texts() {
        let ours = PRODUCT.iter().any(|begin| name.starts_with(begin));
        if !ours || !name.ends_with(".rs") || TESTS.iter().any(|part| name.contains(part)) {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(defined) = defined(line) {
                definitions += 1;
                if let Some(say) = better(&name, defined) {
                    findings += &format!("{name}:{number}: {defined}: say {say}\n");
                }
            }
        }
    }
    assert!(definitions > 5000, "{definitions} definitions");
    assert!(findings.is_empty(), "names that say nothing:\n{findings}");
}

#[test]
fn definitions_are_told_from_uses() {
    for (line, name) in [
        (
            "    pub(crate) fn met(&self) -> Option<&Met> {",
            Some("met"),
        ),
        ("pub const unsafe fn met() {}", Some("met")),
        ("pub enum Life {", Some("Life")),
        ("type Line = (RemoteId, MatchBits);", Some("Line")),
        (
            "static TELLING: AtomicUsize = AtomicUsize::new(0);",
            Some("TELLING"),
        ),
        ("mod early;", Some("early")),
        ("    pub(super) met_on: LinkId,", Some("met_on")),
        ("    Met(Met),", Some("Met")),
        ("    Dire,", Some("Dire")),
        ("    Tombstone {", Some("Tombstone")),
        ("        Life::Met(met) => Some(met),", None),
        ("        met.is(hello)", None),
        ("    /// Met by a hello.", None),
        ("        Some(met) => met,", None),
        ("use crate::remote::Met;", None),
    ] {
        assert_eq!(defined(line), name, "{line}");
    }
}

#[test]
fn names_apply_to_their_part_of_the_tree() {
    assert_eq!(better("mx-proto/src/remote.rs", "met"), Some("connected"));
    assert_eq!(better("mx-sys/src/nic/table.rs", "met"), None);
    assert_eq!(better("ports/tcp/src/lib.rs", "Life"), Some("RemoteState"));
    assert_eq!(better("mx-proto/src/remote.rs", "connected"), None);
}
