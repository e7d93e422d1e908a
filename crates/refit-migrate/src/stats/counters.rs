//! The tables of all counters of moves. Each counter is declared here once, with its name and what
//! it counts; the structs that hold them, their sums, the types of the control API and the metrics
//! come of these tables.
//!
//! A table hands its rows to the macro `$then`. A row is the counter's documentation, its name, and
//! its type: `u64` for a number of operations, or `$times` for a number with durations. The
//! attribute behind some rows has the name that JSON used for the counter formerly.

/// The counters of the moves of one program, as its origin counts them.
#[macro_export]
macro_rules! move_counters {
    ($then:ident, $times:ident) => {
        $then! {
            /// Departures of threads, measured from the stop to the start at the destination.
            out: $times;
            /// Threads that could not depart.
            refused: u64;
            /// Departures that failed, and returns that were forced, because an instance lacked
            /// memory.
            no_memory: u64;
            /// Returns of threads, measured from the message to the start at the origin.
            back: $times;
            /// Returns because the thread was recalled.
            recalled: u64;
            /// Returns for a system call.
            for_calls: u64;
            /// Returns to handle a fault.
            for_exceptions: u64;
            /// Signals for which threads were recalled.
            signals: u64;
            /// Retrievals that were answered with frames that others share.
            shared: u64;
            /// Retrievals for which private memory was converted to shareable frames.
            converted: u64, serde(alias = "made");
            /// Retrievals that were answered with a file.
            files: u64;
            /// Retrievals that could not be answered, so that the thread returned.
            unmapped: u64, serde(alias = "nothing");
            /// The time to find the answers of retrievals.
            answers: $times;
            /// The time that retrievals waited before that.
            questions: $times;
            /// Changes of the memory that threads at other instances made.
            changes: u64;
            /// Changes of the memory that threads at the origin made.
            changes_here: u64;
            /// Changes that other instances were notified of, measured until they had invalidated
            /// what is no longer valid.
            forgets: $times;
            /// The total number of those notifications.
            invalidations_sent: u64, serde(alias = "told");
            /// Requests to the program's coordinator, measured from their arrival in the queue to
            /// their start.
            waits: $times;
        }
    };
}

/// The counters of a program's pages, where pages move.
#[macro_export]
macro_rules! page_counters {
    ($then:ident, $times:ident) => {
        $then! {
            /// Requests of other instances for pages, measured until they were answered.
            fetches: $times;
            /// The time that these requests waited.
            waits: $times;
            /// The number of these requests that were for writing.
            to_write: u64;
            /// Pages that were sent with their contents.
            sent: u64;
            /// Pages of zeros, for which no contents were sent.
            zeros: u64;
            /// Pages that the requesting instance had already and was permitted to write.
            permitted: u64;
            /// Pages that were sent without a request because they follow a requested one.
            ahead: u64;
            /// Pages sent without a request whose successor was requested next.
            ahead_used: u64;
            /// Pages that the program needed at its origin, measured until they were there.
            home: $times;
            /// Pages that had to be retrieved from another instance first.
            taken: u64;
            /// The number of times that an instance was left undisturbed for a while with a page
            /// that it wrote to.
            turns: u64;
        }
    };
}

/// The counters of one instance about a program's threads that run there as replicas, apart from
/// those of each system call. The order is that of the message by which they travel.
#[macro_export]
macro_rules! destination_counters {
    ($then:ident, $times:ident) => {
        $then! {
            /// System calls that needed no other instance.
            local: u64;
            /// System calls that change the memory.
            changes: $times;
            /// Retrievals, which are accesses to unmapped memory, measured from the stop to the
            /// mapping.
            faults: $times;
            /// The part of the retrievals from the request to its answer.
            asks: $times;
            /// Answers that were outdated on arrival, so that the request was repeated.
            retries: u64, serde(alias = "again");
            /// Retrievals that were answered by another instance than the program's origin.
            by_members: u64;
            /// Mappings that were created without a request together with a requested one.
            fault_around: u64, serde(alias = "beside");
            /// Messages that retrievals took.
            messages: u64;
            /// Pages that arrived where pages move, measured from the detection of the waiting
            /// thread to the arrival.
            pages: $times;
            /// Waits for the lock on the memory, where instances agree on it by messages.
            locks: $times;
            /// Messages that these waits took.
            lock_messages: u64;
        }
    };
}
