"""Devices, streams, events, memory and random numbers."""

import copy
import os
import pickle
import threading

import pytest
import torch


def test_the_accelerator_is_this_device(device, module):
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == device
    assert torch.accelerator.device_count() == module.device_count() == len(module.devices())
    assert module.get_device_name(0) == module.devices()[0]
    assert module.devices()[0].split(":")[0] in module.describe()


def test_the_current_device_is_the_threads(two_devices, module):
    first, second = two_devices
    seen = []
    with module.device(1):
        assert module.current_device() == 1
        assert torch.zeros(1, device=torch.device(first).type).device == torch.device(second)
        thread = threading.Thread(target=lambda: seen.append(module.current_device()))
        thread.start()
        thread.join()
    assert (module.current_device(), seen) == (0, [0])
    with pytest.raises(RuntimeError, match="asked for"):
        module.set_device(99)


def test_streams_and_events_order_their_work(device, module):
    stream, default = torch.Stream(device), module.current_stream()
    tensor = torch.ones(1000, device=device)
    with stream:
        assert module.current_stream() == stream
        tensor += 1
        done = stream.record_event()
    default.wait_event(done)
    tensor *= 3
    assert tensor.sum().item() == 6000
    done.synchronize()
    # The event ends a moment before the stream knows that it has nothing else to do.
    stream.synchronize()
    assert done.query() and stream.query()
    module.synchronize()
    assert module.current_stream() == default and stream != default
    high = torch.Stream(device, priority=-1)
    assert high.stream_id != stream.stream_id
    tensor.record_stream(stream)


def test_events_measure_time(device, module):
    stream = module.current_stream()
    start, end = torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)
    try:
        start.record(stream)
        torch.randn(64, 64, device=device) @ torch.randn(64, 64, device=device)
        end.record(stream)
        end.synchronize()
        assert 0 <= start.elapsed_time(end) < 60_000
    except NotImplementedError as error:
        # A device without a clock says so.
        assert "time" in str(error)


def test_an_event_that_is_recorded_again_ends_the_waits_for_what_it_was(device, module):
    factor = torch.full((500, 500), 1e-3, device=device)
    for _ in range(10):
        event, begun = torch.Event(device), threading.Event()
        factor = factor @ factor
        event.record()

        def wait():
            begun.set()
            event.synchronize()

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        begun.wait()
        event.record()
        thread.join(60)
        assert not thread.is_alive()
        module.synchronize()
        assert event.query()


def test_an_event_that_was_never_recorded_waits_for_nothing(device, module):
    event = torch.Event(device)
    event.synchronize()
    module.current_stream().wait_event(event)
    assert event.query()


def test_memory_is_counted_and_given_back(device, module):
    torch.accelerator.memory.empty_cache()
    before = module.memory_allocated()
    module.reset_peak_memory_stats()
    tensor = torch.empty(1 << 20, dtype=torch.uint8, device=device)
    assert module.memory_allocated() == before + (1 << 20)
    view = tensor[100:200]
    del tensor
    assert module.memory_allocated() == before + (1 << 20)
    del view
    assert module.memory_allocated() == before
    assert module.max_memory_allocated() >= before + (1 << 20)
    module.reset_peak_memory_stats()
    assert module.max_memory_allocated() == before
    assert module.memory_reserved() >= 0
    assert module.memory_stats()["allocated_bytes.all.current"] == before
    module.empty_cache()


def test_pinned_memory_is_known_and_copied(device):
    pinned = torch.arange(1000.0).pin_memory()
    assert pinned.is_pinned() and pinned[5:].is_pinned() and not torch.ones(1).is_pinned()
    there = pinned.to(device, non_blocking=True)
    assert torch.equal(there.cpu(), pinned)
    back = torch.empty(1000, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.accelerator.synchronize()
    assert torch.equal(back, pinned)


def keep_busy(device, module):
    """Enqueues work that takes a while; else the test is skipped."""
    factor = torch.full((700, 700), 1e-3, device=device)
    for _ in range(4):
        factor = factor @ factor
    if module.current_stream().query():
        pytest.skip("the device does its work at once")


@pytest.mark.skipif("DEVICE_VALIDATE" in os.environ, reason="the validating layer copies what a queue reads")
def test_a_copy_reads_pinned_memory_later(device, module):
    pinned = torch.zeros(1 << 18).pin_memory()
    there = torch.ones(1 << 18, device=device)
    module.synchronize()
    keep_busy(device, module)
    there.copy_(pinned, non_blocking=True)
    # No program may do this: here it shows that there is no copy.
    pinned.fill_(7)
    assert not module.current_stream().query(), "the copy waited for the device"
    module.synchronize()
    assert (there == 7).all().item()


def test_a_queued_copy_keeps_pinned_memory_and_copies_other_memory(device, module):
    there, others = torch.ones(4, 1 << 14, device=device), torch.full((1 << 14,), 3.0)
    pinned = torch.full((1 << 15,), 2.0).pin_memory()
    keep_busy(device, module)
    there[0].copy_(pinned[100 : 100 + (1 << 14)], non_blocking=True)
    there[1].copy_(others, non_blocking=True)
    there[2].copy_(pinned.view(torch.int32)[: 1 << 14], non_blocking=True)
    others.fill_(9)
    del pinned
    again = torch.zeros(1 << 15).pin_memory()
    module.synchronize()
    assert (there[0] == 2).all().item() and (there[1] == 3).all().item()
    assert again.sum() == 0


def test_random_numbers_repeat(device, module):
    torch.manual_seed(11)
    first = [torch.randn(8, device=device), torch.rand(8, device=device), torch.randperm(8, device=device)]
    torch.manual_seed(11)
    again = [torch.randn(8, device=device), torch.rand(8, device=device), torch.randperm(8, device=device)]
    for a, b in zip(first, again):
        assert torch.equal(a.cpu(), b.cpu())
    state = module.get_rng_state()
    a = torch.rand(4, device=device)
    module.set_rng_state(state)
    assert torch.equal(a.cpu(), torch.rand(4, device=device).cpu())
    assert module.initial_seed() == 11
    own = torch.Generator(device).manual_seed(3)
    a = torch.rand(4, device=device, generator=own)
    own.manual_seed(3)
    assert torch.equal(a.cpu(), torch.rand(4, device=device, generator=own).cpu())
    with torch.random.fork_rng(devices=[0], device_type=device):
        torch.rand(3, device=device)
    assert torch.equal(torch.bernoulli(torch.full((4,), 1.0, device=device)).cpu(), torch.ones(4))


def test_a_seed_of_all_devices_is_that_of_a_generator_made_later(device, two_devices, module, program):
    text = f"""
        import torch
        torch.manual_seed(21)
        print([torch.{device}.initial_seed(index) for index in (1, 0)])
    """
    variables = {name: value for name, value in os.environ.items() if name.startswith("DEVICE_")}
    assert program(text, **variables) == "[21, 21]\n"
    module.manual_seed_all(5)
    assert [module.initial_seed(index) for index in (0, 1)] == [5, 5]


def test_a_seed_is_of_the_device_that_is_asked_for(device, module):
    module.manual_seed(5, 0)
    for index in (99, 256, 2**31):
        with pytest.raises(RuntimeError, match="index is out of range"):
            module.manual_seed(9, index)
    assert module.initial_seed(0) == 5
    with pytest.raises(RuntimeError, match="index is out of range"):
        torch.Generator(f"{device}:99")


def test_dropout_draws_from_the_devices_generator(device, module):
    def mask():
        module.manual_seed(3)
        return torch.nn.functional.dropout(torch.ones(200, device=device, requires_grad=True), 0.5)

    first = mask()
    before = torch.get_rng_state()
    assert torch.equal(mask(), first) and 60 < (first != 0).sum().item() < 140
    assert torch.equal(torch.get_rng_state(), before)
    first.sum().backward()


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_the_accelerator_has_a_capability_and_streams_no_handle(device):
    types = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    assert {torch.float32, torch.bool, torch.float8_e5m2} <= types and torch.qint8 not in types
    for dtype in types:
        assert torch.zeros(2, dtype=dtype).to(device).cpu().dtype == dtype
    with pytest.raises(NotImplementedError, match="has no native handle in PyTorch"):
        torch.Stream(device).native_handle  # noqa: B018


def test_a_generator_is_copied_with_its_state(device):
    generator = torch.Generator(device).manual_seed(3)
    torch.rand(5, device=device, generator=generator)
    twins = copy.deepcopy(generator), pickle.loads(pickle.dumps(generator)), generator.clone_state()
    expected = torch.rand(4, device=device, generator=generator)
    for twin in twins:
        assert twin.device == generator.device and twin.initial_seed() == 3
        assert torch.equal(torch.rand(4, device=device, generator=twin), expected)
    with pytest.raises(RuntimeError, match="has no offset"):
        generator.set_offset(4)


def test_threads_use_the_device_at_once(device):
    failures = []

    def work(seed):
        try:
            stream = torch.Stream(device)
            with stream:
                base = torch.full((100,), float(seed), device=device)
                for _ in range(50):
                    base = (base + 1).clone()[torch.arange(100)]
                assert base.cpu().tolist() == [seed + 50.0] * 100
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
