package proxy

import "bytes"

// plainPath is a path as it is compared with those of rules: decoded, without empty and dot segments. A path that needs none of that is
// returned as it is; else it is written to scratch. What the backend gets is what the client sent.
func plainPath(path []byte, scratch []byte) ([]byte, []byte, *malformed) {
	if bytes.IndexByte(path, '%') < 0 && !bytes.Contains(path, []byte("//")) && !bytes.Contains(path, []byte("/.")) {
		return path, scratch, nil
	}
	out := scratch[:0]
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return nil, scratch, errPath
			}
			c = unhex(path[i+1])<<4 | unhex(path[i+2])
			if i += 2; c == 0 {
				return nil, scratch, errPath
			}
		}
		if c == '/' && len(out) > 0 && out[len(out)-1] == '/' {
			continue
		}
		if c == '/' {
			var ok bool
			if out, ok = undot(out); !ok {
				return nil, scratch, errPath
			}
			if len(out) > 0 && out[len(out)-1] == '/' {
				continue
			}
		}
		out = append(out, c)
	}
	out, ok := undot(out)
	if !ok {
		return nil, scratch, errPath
	}
	return out, out, nil
}

// undot carries out the last segment of a path if it is a dot or two. It returns false where that leads out of the root.
func undot(path []byte) ([]byte, bool) {
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

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}
