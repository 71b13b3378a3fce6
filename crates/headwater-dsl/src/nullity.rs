//! Whether functions see nulls.

use std::fmt::Debug;

/// Says whether the functions of a stream or table see nulls: [`Present`] or [`Nullable`].
///
/// Every record may lack its key and its value; that never depends on the type. What depends on it
/// is what *functions* get and return:
///
/// | | a function gets | and returns |
/// |---|---|---|
/// | `KStream<K, V>` ([`Present`]) | `Option<&K>`, `&V` | `K2`, `V2` |
/// | `KStream<K, V, Nullable>` | `Option<&K>`, `Option<&V>` | `Option<K2>`, `Option<V2>` |
///
/// A record whose value is null passes every operator that needs no function to look at it (copying
/// a topic keeps its tombstones), and is dropped and counted by the first function that has no form
/// for it.
///
/// This trait is sealed.
pub trait Nullity: sealed::Sealed + Debug + Send + Sync + 'static {
    /// What a function gets for a value.
    type Ref<'a, T: 'a>: Copy;
    /// What a function returns.
    type Owned<T>;

    /// What a function gets for this value; `None` when it has no form for it.
    fn view<T>(value: Option<&T>) -> Option<Self::Ref<'_, T>>;

    /// What a function gets for a value that is not null.
    fn present<'a, T: 'a>(value: &'a T) -> Self::Ref<'a, T>;

    /// The value that a function was given; `None` is null.
    fn given<'a, T: 'a>(value: Self::Ref<'a, T>) -> Option<&'a T>;

    /// What a function has returned.
    fn into_option<T>(owned: Self::Owned<T>) -> Option<T>;

    /// An aggregate on its way to a function; `None` when it has no form for it.
    fn wrap<T>(value: Option<T>) -> Option<Self::Owned<T>>;
}

/// Functions see values and return values; the default. See [`Nullity`].
#[derive(Clone, Copy, Debug)]
pub enum Present {}

/// Functions see and return `Option`s. See [`Nullity`].
#[derive(Clone, Copy, Debug)]
pub enum Nullable {}

impl Nullity for Present {
    type Ref<'a, T: 'a> = &'a T;
    type Owned<T> = T;

    fn view<T>(value: Option<&T>) -> Option<&T> {
        value
    }

    fn present<'a, T: 'a>(value: &'a T) -> &'a T {
        value
    }

    fn given<'a, T: 'a>(value: &'a T) -> Option<&'a T> {
        Some(value)
    }

    fn into_option<T>(owned: T) -> Option<T> {
        Some(owned)
    }

    fn wrap<T>(value: Option<T>) -> Option<T> {
        value
    }
}

impl Nullity for Nullable {
    type Ref<'a, T: 'a> = Option<&'a T>;
    type Owned<T> = Option<T>;

    fn view<T>(value: Option<&T>) -> Option<Option<&T>> {
        Some(value)
    }

    fn present<'a, T: 'a>(value: &'a T) -> Option<&'a T> {
        Some(value)
    }

    fn given<'a, T: 'a>(value: Option<&'a T>) -> Option<&'a T> {
        value
    }

    fn into_option<T>(owned: Option<T>) -> Option<T> {
        owned
    }

    fn wrap<T>(value: Option<T>) -> Option<Option<T>> {
        Some(value)
    }
}

/// An aggregate so far, for a user's function.
pub(crate) fn wrap<N: Nullity, A>(so_far: Option<A>) -> N::Owned<A> {
    N::wrap(so_far).expect("only functions that may make null are handed null")
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else is to implement the trait above it")]
    pub trait Sealed {}

    impl Sealed for super::Present {}
    impl Sealed for super::Nullable {}
}
