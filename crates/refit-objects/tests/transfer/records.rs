//! Tests of records: versions of a struct transfer their state to each other, in both directions.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use refit_objects::transfer::{
    EncodingError, Field, FieldError, Record, Storable, Transfer as _, Value,
};
use refit_objects::{
    Implementations, OwnedRep, Root, Transfer, TransferError, create, destroy, interface,
};

#[derive(Clone, Debug, PartialEq, Transfer)]
struct First {
    hits: u64,
    name: String,
    seen: Vec<u8>,
    old_limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Transfer)]
struct Second {
    hits: u64,
    #[transfer(was = "name")]
    title: String,
    #[transfer(default = 7)]
    weight: i32,
    #[transfer(default)]
    places: BTreeMap<String, (u64, bool)>,
    #[transfer(skip)]
    scratch: Option<u64>,
    seen: Vec<u8>,
}

/// As `First`, but the fields that `Second` lacks may be missing.
#[derive(Clone, Debug, PartialEq, Transfer)]
struct FirstAgain {
    hits: u64,
    name: String,
    seen: Vec<u8>,
    #[transfer(default)]
    old_limit: Option<u32>,
}

#[derive(Debug, PartialEq, Transfer)]
struct Retyped {
    hits: u32,
}

fn first() -> First {
    First { hits: 5, name: "a".into(), seen: vec![1, 2, 255], old_limit: Some(9) }
}

#[test]
fn a_newer_version_takes_over_and_the_older_one_takes_back() {
    let second = Second::from_record(first().to_record()).expect("everything has a place");
    assert_eq!((second.hits, &*second.title, second.weight), (5, "a", 7));
    assert_eq!(second.seen, [1, 2, 255]);
    let changed = Second { title: "b".into(), hits: 6, scratch: Some(1), ..second };
    let back = FirstAgain::from_record(changed.to_record()).expect("the new name was the old one");
    assert_eq!((back.hits, &*back.name, back.old_limit), (6, "b", None));
}

#[test]
fn what_cannot_be_taken_is_a_typed_error_that_names_the_field() {
    let second = Second::from_record(first().to_record()).expect("everything has a place");
    let missing = First::from_record(second.to_record()).expect_err("old_limit has no default");
    let expected = FieldError::Missing {
        into: "First",
        from: "Second".into(),
        field: "old_limit",
        type_name: "optional u32".into(),
    };
    assert_eq!(missing, expected);
    assert!(missing.to_string().contains("#[transfer(default)]"));
    let retyped = Retyped::from_record(first().to_record()).expect_err("u64 is not u32");
    let expected = FieldError::Type {
        into: "Retyped",
        from: "First".into(),
        field: "hits",
        expected: "u32".into(),
        found: "u64".into(),
    };
    assert_eq!(retyped, expected);
}

#[interface(name = "plain", state = Record)]
trait Plain {
    fn hits(&self) -> u64;
}

/// The implementation of both versions, each with another struct inside.
struct Holder<T>(Arc<Mutex<Option<T>>>, &'static str);

impl<T: refit_objects::transfer::Transfer + Send + 'static> Plain for Holder<T> {
    fn hits(&self) -> u64 {
        let record = self.0.lock().unwrap().as_ref().map(T::to_record);
        let hits = record.and_then(|r| r.fields.into_iter().find(|f| f.names[0] == "hits"));
        hits.map_or(0, |f| u64::from_value(f.value).expect("it is a u64"))
    }
}

impl<T: refit_objects::transfer::Transfer + Send + 'static> Root<PlainInterface> for Holder<T> {
    fn implementation(&self) -> &str {
        self.1
    }
    fn make_rep(&self, _processor: usize) -> OwnedRep<PlainInterface> {
        PlainInterface::rep(Holder(Arc::clone(&self.0), self.1))
    }
    fn export(&self) -> Result<Record, TransferError> {
        let state = self.0.lock().unwrap();
        state.as_ref().map(T::to_record).ok_or_else(|| TransferError("there is no state".into()))
    }
    fn import(&self, state: Record) -> Result<(), TransferError> {
        *self.0.lock().unwrap() = Some(T::from_record(state)?);
        Ok(())
    }
}

struct Versions;

impl Implementations<PlainInterface> for Versions {
    fn names(&self) -> Vec<&'static str> {
        vec!["first", "second", "retyped"]
    }
    fn root(&self, name: &str) -> Option<Box<dyn Root<PlainInterface>>> {
        Some(match name {
            "first" => Box::new(Holder::<FirstAgain>(Arc::default(), "first")),
            "second" => Box::new(Holder::<Second>(Arc::default(), "second")),
            "retyped" => Box::new(Holder::<Retyped>(Arc::default(), "retyped")),
            _ => return None,
        })
    }
}

#[test]
fn a_swap_reports_what_was_dropped_and_what_began_with_its_default() {
    let root = Holder(Arc::new(Mutex::new(Some(first()))), "first");
    let object: PlainRef = create("versions", Box::new(root), Arc::new(Versions));
    let swap = |to| refit_objects::swap_named(object.id(), to, 1, &crate::table::patient());
    let report = swap("second");
    assert!(report.committed(), "{report:?}");
    let notes = report.transfers.into_iter().next().expect("it went").notes.join("\n");
    for note in
        ["Second.weight is not in", "Second.places", "First.old_limit (optional u32) is dropped"]
    {
        assert!(notes.contains(note), "{note} is not in:\n{notes}");
    }
    assert!(!notes.contains("title") && !notes.contains("scratch"), "{notes}");
    let report = swap("retyped");
    assert!(report.rolled_back(), "{report:?}");
    assert!(format!("{report:?}").contains("Retyped.hits is u32, and u64 in the state of Second"));
    assert_eq!(object.hits(), 5);
    let report = swap("first");
    assert!(report.committed(), "{report:?}");
    assert_eq!(object.hits(), 5);
    destroy(object.id());
}

#[derive(Clone, Debug, PartialEq, Transfer)]
struct Everything {
    a: (u8, i64, f64),
    b: Option<Box<Inner>>,
    c: HashMap<u16, Vec<Inner>>,
    d: [bool; 3],
    e: VecDeque<char>,
    f: std::time::Duration,
    r#type: String,
    g: Vec<u8>,
    h: usize,
}

#[derive(Clone, Debug, PartialEq, Transfer)]
struct Inner {
    x: i8,
    y: Vec<Option<String>>,
}

fn inner() -> impl Strategy<Value = Inner> {
    (any::<i8>(), any::<Vec<Option<String>>>()).prop_map(|(x, y)| Inner { x, y })
}

fn everything() -> impl Strategy<Value = Everything> {
    let maps = proptest::collection::hash_map(
        any::<u16>(),
        proptest::collection::vec(inner(), 0..3),
        0..4,
    );
    let front = (
        any::<(u8, i64)>(),
        -1e300..1e300,
        proptest::option::of(inner()),
        maps,
        any::<[bool; 3]>(),
    );
    let back = (
        any::<VecDeque<char>>(),
        any::<std::time::Duration>(),
        any::<String>(),
        any::<Vec<u8>>(),
        any::<usize>(),
    );
    (front, back).prop_map(|(((a0, a1), a2, b, c, d), (e, f, r#type, g, h))| Everything {
        a: (a0, a1, a2),
        b: b.map(Box::new),
        c,
        d,
        e,
        f,
        r#type,
        g,
        h,
    })
}

/// Returns a record with some of the fields `f0` to `f9`, each a `u64`, with or without a former
/// name.
fn record(fields: &BTreeMap<u8, u64>) -> Record {
    let mut record = Record { name: "Random".into(), fields: vec![] };
    for (number, value) in fields {
        record.put(&[&*format!("f{number}"), &*format!("g{number}")], value);
    }
    record
}

proptest! {
    #[test]
    fn everything_survives_a_record_and_its_bytes(state in everything()) {
        let bytes = state.to_record().to_bytes();
        let record = Record::from_bytes(&bytes).expect("it is whole");
        prop_assert_eq!(&Everything::from_record(record).expect("it is the same struct"), &state);
        prop_assert_eq!(bytes.len() as u64, 24 + u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes")));
    }

    /// A part of a record is never accepted as the whole.
    #[test]
    fn half_a_record_is_noticed(
        state in everything(),
        cut in any::<prop::sample::Index>(),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let bytes = state.to_record().to_bytes();
        let cut = cut.index(bytes.len());
        prop_assert!(Record::from_bytes(&bytes[..cut]).is_err());
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert!(matches!(Record::from_bytes(&longer), Err(EncodingError::Length { .. })), "one byte more");
        let mut damaged = bytes.clone();
        let at = flip.0.index(bytes.len());
        damaged[at] ^= flip.1.max(1);
        prop_assert!(Record::from_bytes(&damaged).is_err());
    }

    /// Any set of fields is transferred to any other and back: the fields that both have arrive, by
    /// present or former name.
    #[test]
    fn any_two_sets_of_fields_understand_each_other(
        old in proptest::collection::btree_map(0..10_u8, any::<u64>(), 0..10),
        new in proptest::collection::btree_set(0..10_u8, 0..10),
        by_former_name in any::<bool>(),
    ) {
        const NAMES: [[&str; 2]; 10] = [
            ["f0", "g0"], ["f1", "g1"], ["f2", "g2"], ["f3", "g3"], ["f4", "g4"],
            ["f5", "g5"], ["f6", "g6"], ["f7", "g7"], ["f8", "g8"], ["f9", "g9"],
        ];
        let mut found = record(&old);
        let mut taken = BTreeMap::new();
        for number in new {
            let [present, former] = NAMES[usize::from(number)];
            let (field, others): (_, &[&str]) = if by_former_name { (former, &[]) } else { (present, &[former]) };
            let value: Option<u64> = found.take("New", field, others).expect("all are u64");
            prop_assert_eq!(value, old.get(&number).copied());
            if let Some(value) = value {
                taken.insert(number, value);
            }
        }
        prop_assert_eq!(found.fields.len(), old.len() - taken.len(), "the others are dropped");
        let mut back = record(&taken);
        for (number, value) in &taken {
            let field: Option<u64> = back.take("Old", NAMES[usize::from(*number)][0], &[]).expect("all are u64");
            prop_assert_eq!(field, Some(*value));
        }
    }

    /// Hostile bytes with a valid head cause an error, but no panic and no large allocation.
    #[test]
    fn hostile_bytes_are_refused(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let sum = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut bytes = b"refitrc\x01".to_vec();
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(sum.to_le_bytes());
        bytes.extend(&body);
        if let Ok(record) = Record::from_bytes(&bytes) {
            prop_assert_eq!(record.to_bytes(), bytes);
        }
    }
}

#[test]
fn a_record_that_is_too_deep_is_refused() {
    let mut value = Value::Nothing;
    for _ in 0..10_000 {
        value = Value::List(vec![value]);
    }
    let field = Field { names: vec!["deep".into()], type_name: "list".into(), value };
    let record = Record { name: "Deep".into(), fields: vec![field] };
    assert!(matches!(Record::from_bytes(&record.to_bytes()), Err(EncodingError::Nonsense(_))));
}
