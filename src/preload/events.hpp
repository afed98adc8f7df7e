// The events of `ringside record --libc`; similar calls share one. Durations are in ns; ret is the call's result.
#pragma once
#include <ringside/trace.hpp>

RINGSIDE_EVENT(libc, malloc, (u64, size), (const void*, ptr), (u64, duration_ns));
RINGSIDE_EVENT(libc, calloc, (u64, nmemb), (u64, size), (const void*, ptr), (u64, duration_ns));
RINGSIDE_EVENT(libc, realloc, (const void*, old), (u64, size), (const void*, ptr), (u64, duration_ns));
RINGSIDE_EVENT(libc, free, (const void*, ptr));
RINGSIDE_EVENT(libc, read, (i32, fd), (u64, count), (i64, ret), (u64, duration_ns));
RINGSIDE_EVENT(libc, write, (i32, fd), (u64, count), (i64, ret), (u64, duration_ns));
RINGSIDE_EVENT(libc, open, (cstring, path), (i32, flags), (i32, ret), (u64, duration_ns));
RINGSIDE_EVENT(libc, close, (i32, fd), (i32, ret));
RINGSIDE_EVENT(libc, mutex_lock, (const void*, mutex), (u64, wait_ns), (i32, ret));
RINGSIDE_EVENT(libc, rwlock_lock, (const void*, rwlock), (bool, write), (u64, wait_ns), (i32, ret));
RINGSIDE_EVENT(libc, spin_lock, (const void*, spin), (u64, wait_ns), (i32, ret));
RINGSIDE_EVENT(libc, cond_wait, (const void*, cond), (const void*, mutex), (u64, wait_ns), (i32, ret));
RINGSIDE_EVENT(libc, cond_signal, (const void*, cond), (bool, all));
RINGSIDE_EVENT(libc, sem_wait, (const void*, sem), (u64, wait_ns), (i32, ret));
RINGSIDE_EVENT(libc, sem_post, (const void*, sem));
