//! Tests of the protocol that two roots agree on, and of the report about it.

use refit_objects::change::{End, Way};
use refit_objects::transfer::{Protocol, Protocols, Typed, negotiate, register_converter};
use refit_objects::{Root, change::Report, destroy, swap};

use crate::table::{self, *};

fn root(name: &'static str, protocols: Protocols) -> Box<dyn Root<TableInterface>> {
    Box::new(TableRoot::new(name, protocols, &Faults::default()))
}

#[test]
fn the_canonical_protocol_is_always_there_and_last_unless_placed() {
    let numbers = |p: Protocols| p.iter().map(Protocol::bit).collect::<Vec<_>>();
    assert_eq!(numbers(Protocols::canonical()), [1]);
    assert_eq!(numbers(Protocols::new([WHOLE, LATER])), [2, 8, 1]);
    assert_eq!(numbers(Protocols::new([Protocol::CANONICAL, WHOLE])), [1, 2]);
    assert_eq!(Protocols::new([WHOLE, WHOLE, LATER]).bits(), 0b1011);
}

#[test]
fn every_pair_of_implementations_agrees_on_what_both_like() {
    let expected = [
        ("referring", "referring", "whole", Way::Reference),
        ("referring", "partitioned", "parts", Way::Partitioned),
        ("partitioned", "lazy", "canonical", Way::Copy),
        ("lazy", "lazy", "later", Way::Lazy),
        ("referring", "lazy", "later", Way::Lazy),
        ("copying", "referring", "canonical", Way::Copy),
    ];
    for (from, to, route, way) in expected {
        let (t, _) = table::table("pairs", from, 100);
        let report = table::swap(t, to);
        assert!(report.committed(), "{report:?}");
        let transfer = report.transfers.into_iter().next().expect("state was moved");
        assert_eq!((transfer.route, transfer.way), (vec![route.to_owned()], way));
        assert_eq!(transfer.items, Some(100));
        check(t, 100);
        destroy(t.id());
    }
}

#[test]
fn no_common_protocol_is_refused_before_anything_is_touched_and_names_both_lists() {
    let (t, _) = table::table("none", "partitioned", 10);
    let report = swap::<TableInterface>(t, root("stranger", Protocols::only([ODD])), 1, &patient());
    let End::Refused(why) = &report.end else { panic!("{report:?}") };
    for part in ["partitioned", "stranger", "parts, canonical", "odd", "register a converter"] {
        assert!(why.contains(part), "{part} is not in: {why}");
    }
    assert_eq!(report.phases, []);
    let negotiation = report
        .transfers
        .into_iter()
        .next()
        .and_then(|t| t.negotiation)
        .expect("it says what it knows");
    assert_eq!((negotiation.from.len(), negotiation.to.len(), negotiation.chosen), (2, 1, None));
    check(t, 10);
    destroy(t.id());
}

#[test]
fn different_partitions_are_no_common_protocol() {
    let (t, faults) = table::table("cut", "partitioned", 10);
    let other = TableRoot::new("eight", Protocols::only([PARTS_PROTOCOL]), &faults).cut(8);
    let report = swap::<TableInterface>(t, Box::new(other), 1, &patient());
    assert!(
        matches!(&report.end, End::Refused(why) if why.contains("the old has 4, the new 8")),
        "{report:?}"
    );
    let other = TableRoot::new("eight", Protocols::new([PARTS_PROTOCOL]), &faults).cut(8);
    let report = swap::<TableInterface>(t, Box::new(other), 1, &patient());
    assert_eq!(report.transfers.into_iter().next().expect("it went").route, ["canonical"]);
    check(t, 10);
    destroy(t.id());
}

/// One test for all of them, because converters belong to the whole process.
#[test]
fn chains_of_converters_are_found_shortest_first_and_used() {
    let try_it = |from: Protocols, to: Protocols| -> Report {
        let (t, _) = table::table("chain", "copying", 20);
        let first = swap::<TableInterface>(t, root("first", from), 1, &patient());
        assert!(first.committed(), "{first:?}");
        let report = swap::<TableInterface>(t, root("second", to), 1, &patient());
        check(t, 20);
        destroy(t.id());
        report
    };
    let only = |p: Protocol| Protocols::only([p]);
    // The first one imports the canonical state; the second one cannot export it.
    let from = |p: Protocol| Protocols::new([p]);
    let (odd, even, third) = (TableInterface::ODD, TableInterface::EVEN, TableInterface::THIRD);
    let refused = try_it(from(ODD), only(THIRD));
    assert!(matches!(refused.end, End::Refused(_)), "{refused:?}");
    register_converter(odd, even, Ok).expect("neither is partitioned");
    register_converter(even, third, Ok).expect("neither is partitioned");
    let report = try_it(from(ODD), only(THIRD));
    assert!(report.committed(), "{report:?}");
    let transfer = report.transfers.into_iter().next().expect("it went");
    assert_eq!(transfer.route, ["odd", "even", "third"]);
    assert!(transfer.items == Some(20) && transfer.convert_ns > 0);
    register_converter(odd, third, |mut items: Items| {
        items.reverse();
        Ok(items)
    })
    .expect("neither is partitioned");
    let report = try_it(from(ODD), only(THIRD));
    assert_eq!(
        report.transfers.into_iter().next().expect("it went").route,
        ["odd", "third"],
        "the shortest"
    );
    // Preferred to the canonical one by both.
    let report = try_it(from(ODD), Protocols::new([THIRD]));
    assert_eq!(report.transfers.into_iter().next().expect("it went").route, ["odd", "third"]);
    // A converter that fails, panics, or loses an item makes the change roll back.
    let fails: [fn(Items) -> Result<Items, refit_objects::TransferError>; 3] = [
        |_| Err(refit_objects::TransferError("not these".into())),
        |_| panic!("not these"),
        |items| Ok(items[1..].to_vec()),
    ];
    for convert in fails {
        register_converter(odd, third, convert).expect("neither is partitioned");
        let report = try_it(from(ODD), only(THIRD));
        assert!(report.rolled_back(), "{report:?}");
    }
    let refusal = register_converter(TableInterface::PARTS, odd, Ok).expect_err("it goes in parts");
    assert!(refusal.to_string().contains("parts"));
}

#[test]
fn protocols_of_implementations_are_told_by_name_and_type() {
    type Named<T> = Typed<TableInterface, T>;
    let ranges = Named::<u64>::named("ranges", Way::Copy).expect("there is room");
    let again = Named::<u64>::named("ranges", Way::Copy).expect("there is room");
    let other = Named::<u32>::named("ranges", Way::Copy).expect("there is room");
    assert_eq!(ranges.id(), again.id());
    assert_ne!(ranges.id(), other.id());
    let (a, b) =
        (root("a", Protocols::only([ranges.id()])), root("b", Protocols::only([other.id()])));
    let none = negotiate(&*a, &*b).expect_err("same name, different type");
    assert!(
        none.to_string().contains("`ranges` is u64 for the one and u32 for the other"),
        "{none}"
    );
    let same = root("c", Protocols::new([again.id()]));
    let agreed = negotiate(&*a, &*same).expect("same name and type");
    assert_eq!(agreed.chosen.as_deref(), Some("ranges"));
    assert!(again.unpack(ranges.pack(7)) == Ok(7));
    assert!(other.unpack(ranges.pack(7)).is_err());
}

mod crowded {
    #[refit_objects::interface(name = "crowded", state = u64)]
    pub(super) trait Crowded {
        fn call(&self);
    }
}

#[test]
fn there_are_no_more_than_64_protocols() {
    for n in 0..32 {
        let name = format!("p{n}");
        Typed::<crowded::CrowdedInterface, u8>::named(&name, Way::Copy).expect("there is room");
    }
    let refused = Typed::<crowded::CrowdedInterface, u8>::named("one more", Way::Copy);
    assert!(refused.expect_err("there is none").to_string().contains("one more"));
    assert!(Typed::<crowded::CrowdedInterface, u8>::named("p7", Way::Copy).is_ok());
}

#[test]
fn one_protocol_can_be_asked_for() {
    let (t, _) = table::table("asked", "referring", 10);
    for (asked, way) in
        [("parts", Way::Partitioned), ("canonical", Way::Copy), ("later", Way::Lazy)]
    {
        let options = refit_objects::SwapOptions { protocol: Some(asked.into()), ..patient() };
        let report = refit_objects::swap_named(t.id(), "referring", 1, &options);
        assert!(report.committed(), "{report:?}");
        assert_eq!(report.transfers.into_iter().next().expect("it went").way, way);
        check(t, 10);
    }
    let options = refit_objects::SwapOptions { protocol: Some("odd".into()), ..patient() };
    let report = refit_objects::swap_named(t.id(), "referring", 1, &options);
    assert!(matches!(&report.end, End::Refused(why) if why.contains("`odd` was asked for")));
    destroy(t.id());
}
