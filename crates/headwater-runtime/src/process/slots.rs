//! Places in a task, handed out when a topology is built, so that nothing is looked up per record.

macro_rules! slot {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl $name {
            /// The place as an index.
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

slot! {
    /// A node of a sub-topology: its place in [`Program::nodes`](crate::Program::nodes).
    NodeIndex
}
slot! {
    /// A store of a sub-topology: its place in [`Program::stores`](crate::Program::stores).
    StoreSlot
}
slot! {
    /// A user processor of a sub-topology: its place in
    /// [`Program::processors`](crate::Program::processors).
    ProcessorSlot
}
slot! {
    /// An operator with times of its own: its place in [`Program::operators`](crate::Program::operators).
    OperatorSlot
}
slot! {
    /// A sink of a sub-topology: its place in [`Program::sinks`](crate::Program::sinks).
    SinkSlot
}
