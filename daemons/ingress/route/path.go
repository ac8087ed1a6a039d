package route

import "bytes"

// PlainPath returns a request path in the form that is compared with rules: decoded, without empty and dot segments. A
// path that already has this form is returned unchanged. Otherwise the result is written to scratch, which is returned
// for reuse. ok is false for a path with an invalid encoding or a path that leaves the root.
func PlainPath(path, scratch []byte) (plain, next []byte, ok bool) {
	if bytes.IndexByte(path, '%') < 0 && !bytes.Contains(path, []byte("//")) && !bytes.Contains(path, []byte("/.")) {
		return path, scratch, true
	}
	out := scratch[:0]
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			if c, ok = decodeByte(path[i:]); !ok || c == 0 {
				return nil, scratch, false
			}
			i += 2
		}
		if c == '/' && len(out) > 0 && out[len(out)-1] == '/' {
			continue
		}
		if c == '/' {
			if out, ok = resolveDots(out); !ok {
				return nil, scratch, false
			}
			if len(out) > 0 && out[len(out)-1] == '/' {
				continue
			}
		}
		out = append(out, c)
	}
	if out, ok = resolveDots(out); !ok {
		return nil, scratch, false
	}
	return out, out, true
}

// declaredPath returns the path of a rule in the form of PlainPath, because rules can contain encoded paths. A path
// with an invalid encoding, such as "/100%", stays unchanged and matches requests whose decoded path equals it.
func declaredPath(path string) string {
	if plain, _, ok := PlainPath([]byte(path), nil); ok {
		return string(plain)
	}
	return path
}

// resolveDots resolves the last segment of a path if it is "." or "..". It returns false if the result would leave the
// root.
func resolveDots(path []byte) ([]byte, bool) {
	switch n := len(path); {
	case bytes.HasSuffix(path, []byte("/.")):
		return path[:n-1], true
	case bytes.HasSuffix(path, []byte("/..")):
		if n == 3 {
			return path, false
		}
		return path[:bytes.LastIndexByte(path[:n-3], '/')+1], true
	}
	return path, true
}

// decodeByte returns the byte that a text such as "%2F" begins with.
func decodeByte(text []byte) (byte, bool) {
	if len(text) < 3 || text[0] != '%' || !isHex(text[1]) || !isHex(text[2]) {
		return 0, false
	}
	return unhex(text[1])<<4 | unhex(text[2]), true
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f' }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// encodedRest returns what follows the first n bytes of a plain path, in the client's encoding. ok is false if the
// segments differ because dot or empty segments were removed.
func encodedRest(sent, plain []byte, n int) (rest []byte, ok bool) {
	i := 0
	for k := range plain {
		if k == n {
			rest, ok = sent[i:], true
		}
		if i >= len(sent) {
			return nil, false
		}
		c, size := sent[i], 1
		if d, found := decodeByte(sent[i:]); found {
			c, size = d, 3
		}
		if c != plain[k] {
			return nil, false
		}
		i += size
	}
	if n == len(plain) {
		rest, ok = sent[i:], true
	}
	return rest, ok && i == len(sent)
}
