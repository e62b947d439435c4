//! The test of this package validates the list of devices as JSON. It is a package of its own, as its
//! validator takes half a minute to build.
