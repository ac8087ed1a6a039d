package step

import (
	"context"
	"errors"
	"time"

	"clusterctl/provision/host"
)

// healthTimeout is the timeout of one health check.
const healthTimeout = 5 * time.Second

// MemberHealth checks whether a store member answers and belongs to a majority. There is nothing to apply.
type MemberHealth struct {
	Store Store  `json:"store"` // connects to this member only
	Name  string `json:"name"`
}

func (*MemberHealth) checksRemotely() {}

// Label names the member.
func (s *MemberHealth) Label() string { return "health of etcd member " + s.Name }

// Check sends the member a request that only a majority can answer.
func (s *MemberHealth) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	err := s.Store.withClient(ctx, h, func(context.Context, host.Etcd, []host.Member) error { return nil })
	return failedChange("etcd", s.Name, err), nil
}

// Apply does nothing. Other steps repair a member.
func (s *MemberHealth) Apply(context.Context, host.Host, *Walk) error { return nil }

// ServerHealth checks whether an API server is ready. There is nothing to apply.
type ServerHealth struct {
	Name string `json:"name"` // name of the machine
	URL  string `json:"url"`
	host.Client
}

func (*ServerHealth) checksRemotely() {}

// Label names the server.
func (s *ServerHealth) Label() string { return "health of the API server on " + s.Name }

// Check asks the server.
func (s *ServerHealth) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return failedChange("kube-apiserver", s.Name, h.CheckURL(ctx, s.URL, s.Client)), nil
}

// Apply does nothing.
func (s *ServerHealth) Apply(context.Context, host.Host, *Walk) error { return nil }

// APIReach checks that a machine can connect to at least one API server. Without that, its node gets no updates and
// becomes not ready. There is nothing to apply.
type APIReach struct {
	URLs []string `json:"urls"`
	host.Client
}

func (*APIReach) checksRemotely() {}

// Label returns a fixed text.
func (s *APIReach) Label() string { return "way to the API" }

// Check tries the servers in order. A server that answers with an HTTP error counts as reachable.
func (s *APIReach) Check(ctx context.Context, h host.Host, _ *Walk) (Change, error) {
	var failed error
	for _, url := range s.URLs {
		one, cancel := context.WithTimeout(ctx, healthTimeout)
		err := h.CheckURL(one, url, s.Client)
		cancel()
		if err == nil || errors.As(err, new(host.StatusError)) {
			return Change{}, nil
		}
		failed = errors.Join(failed, err)
	}
	return failedChange("kube-apiserver", "way to the API", failed), nil
}

// Apply does nothing.
func (s *APIReach) Apply(context.Context, host.Host, *Walk) error { return nil }

// failedChange returns a Change with the error, or the zero Change if err is nil.
func failedChange(kind, name string, err error) Change {
	if err == nil {
		return Change{}
	}
	return Change{Action: Update, Kind: kind, Name: name, Note: err.Error()}
}
