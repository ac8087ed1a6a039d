package route

import (
	"net/url"
	"strings"
)

// Match is the condition of a rule besides host and path. The zero value matches everything.
type Match struct {
	Method  string // empty matches any
	Headers []Pair // all must match
	Query   []Pair
}

// Pair is a name with the required value.
type Pair struct{ Name, Value string }

func (m *Match) isMetBy(r Request) bool {
	if m.Method == "" && m.Headers == nil && m.Query == nil {
		return true
	}
	if m.Method != "" && m.Method != r.Method() {
		return false
	}
	for _, p := range m.Headers {
		if value, ok := r.Header(p.Name); !ok || value != p.Value {
			return false
		}
	}
	for _, p := range m.Query {
		if value, ok := r.Query(p.Name); !ok || value != p.Value {
			return false
		}
	}
	return true
}

// specificity returns how specific a match is. Among rules for the same path, those with more conditions are checked
// first.
func (m *Match) specificity() int {
	n := 100*len(m.Headers) + len(m.Query)
	if m.Method != "" {
		n += 10000
	}
	return n
}

// Filters are the changes to a request and its response. A nil field changes nothing.
type Filters struct {
	Redirect *Redirect // sent instead of forwarding to a backend
	Rewrite  *Rewrite
	Request  *Headers
	Response *Headers
}

// Redirect is a redirect of the client. Empty fields are taken from the request.
type Redirect struct {
	Scheme, Host string
	Port         int
	Path         string
	Prefix       *Swap // used if Path is empty
	Code         int
}

// Rewrite changes the request to the backend. Empty fields stay.
type Rewrite struct {
	Host, Path string
	Prefix     *Swap // used if Path is empty
}

// Swap replaces a prefix of a path, by segments, with another prefix. Neither ends in a slash. From has the form that
// PlainPath returns, and To has the form that is sent.
type Swap struct{ From, To string }

// NewSwap returns a swap of a rule's prefix. prefix has the form in which the rule is written.
func NewSwap(prefix, to string) *Swap {
	return &Swap{From: strings.TrimRight(declaredPath(prefix), "/"), To: strings.TrimRight(to, "/")}
}

// Apply returns the path of a request with the prefix From replaced by To. The rest stays as the client sent it, unless
// the path had dot segments or empty segments. It returns false for a path that no rule matches.
func (s *Swap) Apply(sent []byte) (string, bool) {
	plain, _, ok := PlainPath(sent, nil)
	if !ok {
		return "", false
	}
	n := min(len(s.From), len(plain))
	var rest string
	if kept, ok := encodedRest(sent, plain, n); ok && (len(kept) == 0 || kept[0] == '/') {
		rest = string(kept)
	} else {
		rest = (&url.URL{Path: string(plain[n:])}).EscapedPath()
	}
	to := s.To + rest
	if to == "" || to[0] != '/' {
		to = "/" + to
	}
	return to, true
}

// Headers are changes of a message head.
type Headers struct {
	Set, Add []Pair
	Remove   []string
}
