package apiserver

import (
	"context"
	"testing"

	"clusterctl/daemons/api"
)

// Every stage has a way without waiting, because one without it would disable the fast path. The author of a new stage
// must decide that here.
func TestEveryStageIsPassedOnTheShortWay(t *testing.T) {
	for i, stage := range stages {
		if stage.do == nil || stage.prompt == nil {
			t.Errorf("stage %d does not say what it does, or how it does it without waiting", i)
		}
	}
}

type asking struct{}

func (asking) Authorize(context.Context, api.User, api.Request) (api.Decision, string, error) {
	return api.Allow, "", nil
}

// An authorizer without a way that does not wait is never skipped in favour of the next one.
func TestWhoMayHaveToWaitIsNotAskedPromptly(t *testing.T) {
	s := &Server{o: Options{Authorizers: []api.Authorizer{asking{}}}}
	if s.authorizePromptly(&prompted{s: s, q: &request{}}) {
		t.Error("the request was allowed")
	}
}
