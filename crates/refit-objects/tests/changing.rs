//! Wrappers that do not know the interface and change arguments and results all the same.

mod store;

use refit_objects::{After, Outcome, PostCall, PreCall, Value, Wrapper, attach, destroy};

use store::store;

/// A wrapper that truncates reads to two bytes, adds less than it was asked to, and reports more.
struct Meddler;

impl Wrapper for Meddler {
    fn name(&self) -> &str {
        "meddler"
    }
    fn precall(&self, call: &PreCall<'_>) -> After {
        match call.method_name() {
            "read" => {
                assert!(!call.set_argument(1, Value::Length(1_000)), "it cannot be made longer");
                assert!(call.set_argument(1, Value::Length(2)));
                assert_eq!(call.argument(1), Value::Length(2));
                assert!(!call.set_argument(2, Value::Unsigned(0)), "there is none");
            }
            "add" => assert!(call.set_argument(0, Value::Unsigned(1))),
            _ => return After::Forward,
        }
        After::Postcall(0)
    }
    fn postcall(&self, call: &PostCall<'_>) {
        match (call.method_name(), call.result()) {
            ("add", Value::Unsigned(sum)) => assert!(call.set_result(Value::Unsigned(sum + 1_000))),
            ("read", Value::Unsigned(read)) => {
                assert_eq!(call.outcome(), Outcome::Returned);
                assert!(call.set_result(Value::Unsigned(read * 10)));
                assert!(!call.set_result(Value::Signed(-1)), "it is no size");
            }
            ("read", Value::Opaque) => {
                assert_eq!(call.outcome(), Outcome::Failed);
                assert!(!call.set_result(Value::Unsigned(1)), "an error stays one");
                assert!(call.fail(28), "but can be another one");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_untyped_wrapper_changes_arguments_and_results() {
    let s = store("changed");
    assert_eq!((s.read(0, &mut [0; 8]), s.read(u64::MAX, &mut [0; 8])), (Ok(8), Err(22)));
    attach(s.id(), Meddler).expect("it lives");
    assert_eq!(s.read(0, &mut [0; 8]), Ok(20), "two bytes, told as ten times as many");
    assert_eq!(s.read(u64::MAX, &mut [0; 8]), Err(28));
    let before = s.add(50);
    assert_eq!(s.add(50), before + 1, "1 instead of 50, and 1000 more both times");
    destroy(s.id());
}
