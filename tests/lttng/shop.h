#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER shop
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./shop.h"
#if !defined(RINGSIDE_TESTS_LTTNG_SHOP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define RINGSIDE_TESTS_LTTNG_SHOP_H
#include <lttng/tracepoint.h>
LTTNG_UST_TRACEPOINT_ENUM(shop, state,
                          LTTNG_UST_TP_ENUM_VALUES(lttng_ust_field_enum_value("open", 0) lttng_ust_field_enum_value("paid", 1)))
LTTNG_UST_TRACEPOINT_EVENT(
    shop, order, LTTNG_UST_TP_ARGS(int, number, const char*, name, double, price, const int*, list, unsigned, n),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, number, number) lttng_ust_field_integer_hex(unsigned long, key,
                                                                                                 (unsigned long)number * 16)
                            lttng_ust_field_string(name, name) lttng_ust_field_float(double, price, price)
                                lttng_ust_field_sequence(int, list, list, unsigned, n) lttng_ust_field_array(int, pair, list, 2)
                                    lttng_ust_field_enum(shop, state, int, state, number % 2)))
LTTNG_UST_TRACEPOINT_EVENT(shop, closed, LTTNG_UST_TP_ARGS(int, orders),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, orders, orders)))
#endif
#include <lttng/tracepoint-event.h>
