//! A library that needs a function which is nowhere.

unsafe extern "C" {
    fn function_of_no_library();
}

#[unsafe(no_mangle)]
extern "C" fn codec_decode_v0() {
    unsafe { function_of_no_library() }
}
