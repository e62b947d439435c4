// Behind a text: its kernel for the simulated driver.

#undef run

template <typename T> struct Kind {
    static const char letter = sizeof(T) <= 4 ? '4' : '8';
};
template <typename T> struct Kind<T *> {
    static const char letter = 'p';
};
template <typename... T> struct Signature {
    static const char letters[];
};
template <typename... T> const char Signature<T...>::letters[] = {Kind<T>::letter..., 0};
template <typename... T> constexpr const char *letters_of(void (*)(T...)) { return Signature<T...>::letters; }

template <int... N> struct Places {};
template <int N, int... M> struct Count : Count<N - 1, N - 1, M...> {};
template <int... M> struct Count<0, M...> {
    typedef Places<M...> type;
};
template <typename... T, int... N>
static void call(void (*kernel)(T...), void *const *arguments, Places<N...>) {
    kernel(*(T *)arguments[N]...);
}
template <typename... T> static void call(void (*kernel)(T...), void *const *arguments) {
    call(kernel, arguments, typename Count<sizeof...(T)>::type());
}

static void *const *simulated_arguments;
// The compiler takes it that the functions of its checks change nothing here.
static const char *volatile simulated_fault;

static void simulated_item() { call(run, simulated_arguments); }

// Each item of a group has a stack, and its turn ends at a barrier.
enum { MOST = 1024, STACK = 1 << 16 };
static ucontext_t simulated_turns, simulated_items[MOST];
static char *simulated_stacks;
static int simulated_now, simulated_lines[MOST];

static void simulated_barrier(int line) {
    simulated_lines[simulated_now] = line;
    swapcontext(&simulated_items[simulated_now], &simulated_turns);
}

static void simulated_in_turns() {
    simulated_item();
    simulated_lines[simulated_now] = -1;
}

static void simulated_place(int item) {
    simulated_now = item;
    simulated.item[0] = item % simulated.sizes[0];
    simulated.item[1] = item / simulated.sizes[0] % simulated.sizes[1];
    simulated.item[2] = item / simulated.sizes[0] / simulated.sizes[1];
}

static void simulated_group(int items) {
    if (!simulated_stacks) simulated_stacks = (char *)__builtin_malloc((ulong)MOST * STACK);
    for (int item = 0; item < items; item++) {
        getcontext(&simulated_items[item]);
        simulated_items[item].uc_stack.ss_sp = simulated_stacks + (ulong)item * STACK;
        simulated_items[item].uc_stack.ss_size = STACK;
        simulated_items[item].uc_link = &simulated_turns;
        makecontext(&simulated_items[item], simulated_in_turns, 0);
    }
    for (bool more = true; more && !simulated_fault;) {
        for (int item = 0; item < items; item++) {
            simulated_place(item);
            swapcontext(&simulated_turns, &simulated_items[item]);
        }
        more = simulated_lines[0] >= 0;
        for (int item = 1; item < items; item++) {
            if (simulated_lines[item] != simulated_lines[0]) simulated_fault = "not all items of a group reach a barrier";
        }
    }
}

// What the compiler's checks call, in the place of their library.
extern "C" void __ubsan_handle_out_of_bounds(void *, void *) { simulated_fault = "an index outside of an array"; }
extern "C" void __ubsan_handle_type_mismatch_v1(void *, void *) {
    simulated_fault = "an access that is not aligned, or to no memory";
}

extern "C" const char *const simulated_parameters = letters_of(run);

extern "C" const char *simulated_launch(void *const *arguments, const uint *blocks, const uint *threads) {
    simulated_arguments = arguments;
    simulated_fault = 0;
    int items = 1;
    for (int axis = 0; axis < 3; axis++) {
        simulated.sizes[axis] = threads[axis];
        items *= threads[axis];
    }
    for (uint z = 0; z < blocks[2]; z++) {
        for (uint y = 0; y < blocks[1]; y++) {
            for (uint x = 0; x < blocks[0]; x++) {
                simulated.block[0] = x;
                simulated.block[1] = y;
                simulated.block[2] = z;
#ifdef IN_TURNS
                simulated_group(items);
#else
                for (int item = 0; item < items; item++) {
                    simulated_place(item);
                    simulated_item();
                }
#endif
                if (simulated_fault) return simulated_fault;
            }
        }
    }
    return 0;
}
