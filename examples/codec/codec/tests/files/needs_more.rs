//! A library that needs a function which is nowhere.

unsafe extern "C" {
    fn function_of_no_library();
}

#[unsafe(no_mangle)]
extern "C" fn codec_decoder_v0() -> *const u8 {
    unsafe { function_of_no_library() };
    std::ptr::null()
}
