package route

// Match is what a request must have beyond its host and path. The zero value accepts everything.
type Match struct {
	Method  string // empty: any
	Headers []Pair // all of them
	Query   []Pair
}

// Pair is a name with the value that it must have.
type Pair struct{ Name, Value string }

func (m *Match) accepts(r Request) bool {
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

// weight is how specific a match is: of rules for the same path, the one with more conditions is asked first.
func (m *Match) weight() int {
	n := 100*len(m.Headers) + len(m.Query)
	if m.Method != "" {
		n += 10000
	}
	return n
}

// Filters are what is done to a request and its answer on the way. A nil field does nothing.
type Filters struct {
	Redirect *Redirect // answers in place of a backend
	Rewrite  *Rewrite
	Request  *Headers
	Response *Headers
}

// Redirect sends the client elsewhere. Empty fields stay as in the request.
type Redirect struct {
	Scheme, Host string
	Port         int
	Path         string
	Prefix       *Swap // where Path is empty
	Code         int
}

// Rewrite changes what the backend is asked for. Empty fields stay.
type Rewrite struct {
	Host, Path string
	Prefix     *Swap // where Path is empty
}

// Swap puts one prefix of a path, by segments, in the place of another. Neither ends in a slash.
type Swap struct{ From, To string }

// Of returns a path, whose beginning is From, with To in its place.
func (s *Swap) Of(path string) string {
	rest := path[min(len(s.From), len(path)):]
	if to := s.To + rest; to != "" && to[0] == '/' {
		return to
	}
	return "/" + s.To + rest
}

// Headers are the changes of a head.
type Headers struct {
	Set, Add []Pair
	Remove   []string
}
