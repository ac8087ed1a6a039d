package apiserver

import (
	"context"
	"testing"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/identity"
	"clusterctl/daemons/apiserver/request"
)

// Every stage has a way without waiting, because one without it would disable the fast path. The author of a new stage
// must decide that here.
func TestEveryStageHasAFastPath(t *testing.T) {
	for i, stage := range (&Server{}).newStages() {
		if stage.run == nil || stage.runFast == nil {
			t.Errorf("stage %d does not say what it does, or how it does it without waiting", i)
		}
	}
}

type blockingAuthorizer struct{}

func (blockingAuthorizer) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Allow, "", nil
}

// An authorizer without a way that does not wait is never skipped in favour of the next one.
func TestBlockingAuthorizersDisableTheFastPath(t *testing.T) {
	i := identity.New(identity.Config{Authorizers: []api.Authorizer{blockingAuthorizer{}}})
	if i.TryAuthorize(&request.Request{}) {
		t.Error("the request was allowed")
	}
}
