package workload

import (
	"context"

	"clusterctl/provision/state"
)

// Read returns a live object, or nil if there is none.
func (l *connection) Read(ctx context.Context, apiVersion, kind, namespace, name string) (map[string]any, error) {
	live, err := l.get(ctx,
		state.Object{Address: "data", APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name})
	if err != nil || live == nil {
		return nil, err
	}
	return live.Object, nil
}
