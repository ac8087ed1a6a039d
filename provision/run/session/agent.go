package session

import (
	"context"
	"io"

	"clusterctl/daemons/config/store"
	"clusterctl/provision/agent"
	"clusterctl/provision/host"
	"clusterctl/provision/role"
	"clusterctl/provision/step"
	"clusterctl/provision/support"
)

// Agent is the client of a machine's agent.
type Agent interface {
	Facts(ctx context.Context) (host.Facts, error)
	Check(ctx context.Context, steps []step.Step) ([]step.Change, error)
	Apply(ctx context.Context, steps []step.Step, progress func(agent.Progress)) error
	Collect(ctx context.Context) ([]support.File, error)
	// Trace makes the machine watch for a packet, and send it if q says so. It calls started when the machine watches.
	Trace(ctx context.Context, q host.Trace, started func()) (host.Traced, error)
	Remains(ctx context.Context) (role.Remains, error)
	// SetTurn sets the turn for later calls of Apply. Without it, Apply does not check the turn.
	SetTurn(t agent.Turn)
	Send(ctx context.Context, digest, name string, compressed io.Reader) error
	SendPrivate(ctx context.Context, digest, name string, compressed io.Reader) error
	// Read writes a file of the machine to w. It fails if the file is larger than size bytes.
	Read(ctx context.Context, path string, size int64, w io.Writer) error
	// Store runs the program etcd of this digest, which must have been sent, with a request about the store.
	Store(ctx context.Context, digest string, q store.Request) (store.Answer, error)
	Close() error
}

// programSender is implemented by agents whose program may have to be sent first.
type programSender interface {
	SentBytes() int64 // size of the program on the machine in bytes; zero if it was not sent
}
