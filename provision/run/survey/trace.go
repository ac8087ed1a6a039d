package survey

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"clusterctl/provision/host"
	"clusterctl/provision/run/session"
)

// Traced is what one machine has observed of a packet.
type Traced struct {
	Node string
	host.Traced
	Error string // why it could not be asked
}

// traceSlack is how long a machine may take to answer after it has stopped watching.
const traceSlack = 30 * time.Second

// Trace makes the machines of the session watch for a packet. When all machines that can be reached watch, it calls
// send, or sender's machine sends the packet as q says. A machine that does not answer does not stop the trace, unless
// it is the sender.
func Trace(
	ctx context.Context,
	s *session.Session,
	q host.Trace,
	sender string,
	send func(ctx context.Context),
) ([]Traced, error) {
	if sender != "" && !slices.ContainsFunc(s.Machines, func(m *session.Machine) bool { return m.Name == sender }) {
		return nil, fmt.Errorf("node %s is none of the configuration's machines", sender)
	}
	list := make([]Traced, len(s.Machines))
	var all sync.WaitGroup
	for i, m := range s.Machines {
		list[i].Node = m.Name
		all.Go(func() {
			if err := s.Connect(ctx, m); err != nil {
				list[i].Error = err.Error()
			}
		})
	}
	all.Wait()
	if i := slices.IndexFunc(list, func(t Traced) bool { return t.Node == sender }); i >= 0 && list[i].Error != "" {
		return nil, fmt.Errorf("reach %s, which is to send the packet: %s", sender, list[i].Error)
	}
	// The sender waits until every other machine watches or has failed to.
	var watching, sending sync.WaitGroup
	for i, m := range s.Machines {
		if list[i].Error != "" {
			continue
		}
		if m.Name == sender {
			sending.Go(func() {
				watching.Wait()
				mine := q
				mine.Send = true
				list[i].watch(ctx, m, mine, func() {})
			})
			continue
		}
		watching.Add(1)
		all.Go(func() {
			started := sync.OnceFunc(watching.Done)
			defer started()
			list[i].watch(ctx, m, q, started)
		})
	}
	if sender == "" {
		watching.Wait()
		send(ctx)
	}
	sending.Wait()
	all.Wait()
	for _, t := range list {
		if t.Node == sender && t.Error != "" {
			return nil, fmt.Errorf("have %s send the packet: %s", sender, t.Error)
		}
	}
	return list, nil
}

func (t *Traced) watch(ctx context.Context, m *session.Machine, q host.Trace, started func()) {
	ctx, cancel := context.WithTimeout(ctx, q.Duration+traceSlack)
	defer cancel()
	var err error
	if t.Traced, err = m.Agent.Trace(ctx, q, started); err != nil {
		t.Error = err.Error()
	}
}
