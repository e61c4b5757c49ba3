"""Arguments of functions that must be refused, of each kind."""

import string

from hypothesis import strategies as st

NAME_CHARACTERS = string.ascii_letters + string.digits + "._:/-"
MAX_LEASE_MS = 3_600_000
VISIBLE = "".join(map(chr, range(33, 127)))

# What no reader takes for a number, however it begins.
NUMBERS = st.one_of(
    st.sampled_from(["", "nan", "-nan", "inf", "-inf", "-1", "1e16", "0x", "1 2", "--1", "1,5"]),
    st.sampled_from([b"\0", b"\0001"]),
    st.text("xyz-é \n\t", min_size=1).map(lambda text: text + "x"),
    st.binary(max_size=40).map(lambda value: b"#" + value),
    st.floats(max_value=-1e-9, allow_nan=False).map(repr),
    st.floats(min_value=1e16, allow_nan=False).map(repr),
)  # fmt: skip
WHOLES = NUMBERS | st.sampled_from(["0.5", "1.5", "1e-3"])


def words(characters: str, most: int) -> st.SearchStrategy[str | bytes]:
    """None of 1 to `most` of these characters."""
    some = st.text(characters, max_size=5)
    odd = st.text(min_size=1, max_size=3).filter(lambda text: not set(text) <= set(characters))
    return st.one_of(
        st.just(""),
        st.integers(most + 1, 4 * most).map(lambda length: characters[0] * length),
        st.tuples(some, odd, some).map("".join).map(lambda text: text.encode(errors="surrogatepass")),
        st.binary(min_size=1, max_size=5).filter(lambda value: not set(value) <= set(characters.encode())),
    )


NAMES = words(NAME_CHARACTERS, 128)
BAD_VERSIONS = WHOLES | st.just(str(2**53))
BAD_IDS = words(VISIBLE.replace("#", ""), 200) | st.sampled_from(["a", "a#", "#a", "a#b#c"])
BAD_WORDS = words(VISIBLE, 200)
BAD_LEASES = WHOLES | st.sampled_from([0, MAX_LEASE_MS + 1])
BAD_LIMITS = WHOLES | st.just(MAX_LEASE_MS + 1)
BAD_FLAGS = WHOLES | st.just(2)
BAD_SETS = st.sampled_from([b"a", b"=", b"*64", b"*01", b"*", b"=" + b"x" * 129, b"=\xff", b"=\0"])
BAD_CHANGES = BAD_SETS.map(lambda name: b"1 2 " + name + b" node1") | st.sampled_from(
    ["", "1 2", "1 2 *0", "2 1 *0 a", "1 2 *0 >", "1 2 *0 -", "1 2 *0 a,b", "1 2 =A >>a", b"1 2 =A \xff"]
)
# Arguments of each function, and what each must not be.
PLACEMENT = {
    "join": (["a#b"], [BAD_IDS]),
    "report": (["a#b", "g1", 1, "-", "-"], [BAD_IDS, BAD_WORDS, BAD_VERSIONS, BAD_SETS, BAD_SETS]),
    "leave": (["a#b", 0], [BAD_IDS, BAD_FLAGS]),
    "claim": (
        ["k3", 1, 1, 0, "hold", 1000, "s1"],
        [
            *(BAD_WORDS, BAD_LEASES, BAD_LEASES, BAD_LIMITS, BAD_WORDS),
            *(WHOLES | st.just(999), BAD_WORDS | st.just("a#b")),
        ],
    ),
    "resign": (["k1", 1], [BAD_WORDS, BAD_VERSIONS]),
    "read": (
        ["k1", 1, 1, 0, 0, "", 0],
        [BAD_WORDS, BAD_VERSIONS, BAD_LEASES, BAD_LIMITS, BAD_FLAGS, st.just("x" * 201), BAD_LIMITS],
    ),
    "open": (
        ["k1", 1, "g", 1, 0, "", " ".join(f"*{rest} node1" for rest in range(64))],
        [BAD_WORDS, BAD_VERSIONS, BAD_WORDS, BAD_VERSIONS | st.just(0), WHOLES,
         st.sampled_from(["a", "a#", "#a", "a#b#c"]), BAD_SETS],
    ),
    "publish": (["k1", 1, "g", "1 2 *0 a"], [BAD_WORDS, BAD_VERSIONS, BAD_WORDS, BAD_CHANGES]),
    "heed": (["k1", 1], [BAD_WORDS, BAD_VERSIONS]),
    "settle": (["k1", 1, "s"], [BAD_WORDS, BAD_VERSIONS, BAD_WORDS]),
    "follow": (["-", 0, 0], [BAD_WORDS, BAD_VERSIONS, BAD_VERSIONS]),
    "forget": (["a#b"], [BAD_IDS]),
    "wish": (["*0", "node1"], [BAD_SETS, NAMES | st.just("-")]),
}  # fmt: skip
