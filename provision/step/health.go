package step

import (
	"context"
	"errors"
	"time"

	"clusterctl/provision/host"
)

// healthTimeout is how long one look may take.
const healthTimeout = 5 * time.Second

// MemberHealth is that one member of the store answers, and is of a majority. It is looked at,
// never applied.
type MemberHealth struct {
	Store Store  `json:"store"` // of that member alone
	Name  string `json:"name"`
}

func (*MemberHealth) distant() {}

// Label names the member.
func (s *MemberHealth) Label() string { return "health of etcd member " + s.Name }

// Check asks the member for what only a majority can agree on.
func (s *MemberHealth) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := s.Store.with(ctx, h, func(context.Context, host.Etcd, []host.Member) error { return nil })
	return ill("etcd", s.Name, err), nil
}

// Apply does nothing: what is ill is mended by what it is made of.
func (s *MemberHealth) Apply(context.Context, host.Host, *Walk) error { return nil }

// ServerHealth is that an API server says that it is ready. It is looked at, never applied.
type ServerHealth struct {
	Name string `json:"name"` // of the machine
	URL  string `json:"url"`
	host.Client
}

func (*ServerHealth) distant() {}

// Label names the server.
func (s *ServerHealth) Label() string { return "health of the API server on " + s.Name }

// Check asks it.
func (s *ServerHealth) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return ill("kube-apiserver", s.Name, h.Answers(ctx, s.URL, s.Client)), nil
}

// Apply does nothing.
func (s *ServerHealth) Apply(context.Context, host.Host, *Walk) error { return nil }

// APIReach checks that a machine can connect to at least one API server. Without that, its node gets no updates and
// becomes not ready. There is nothing to apply.
type APIReach struct {
	URLs []string `json:"urls"`
	host.Client
}

func (*APIReach) distant() {}

// Label returns a fixed text.
func (s *APIReach) Label() string { return "way to the API" }

// Check tries the servers in order. A server that answers with an HTTP error counts as reachable.
func (s *APIReach) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	var failed error
	for _, url := range s.URLs {
		one, cancel := context.WithTimeout(ctx, healthTimeout)
		err := h.Answers(one, url, s.Client)
		cancel()
		if err == nil || errors.As(err, new(host.StatusError)) {
			return Change{}, nil
		}
		failed = errors.Join(failed, err)
	}
	return ill("kube-apiserver", "way to the API", failed), nil
}

// Apply does nothing.
func (s *APIReach) Apply(context.Context, host.Host, *Walk) error { return nil }

// ill is the zero Change for no error.
func ill(kind, name string, err error) Change {
	if err == nil {
		return Change{}
	}
	return Change{Action: Update, Kind: kind, Name: name, Note: err.Error()}
}
