package apiserver

import (
	"context"
	"testing"

	"clusterctl/daemons/api"
)

// A stage that says nothing of how it does without waiting turns the short way off for all: whoever adds one decides
// that here.
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

// An authorizer that does not say how it decides without waiting is never passed over for the next one.
func TestWhoMayHaveToWaitIsNotAskedPromptly(t *testing.T) {
	s := &Server{o: Options{Authorizers: []api.Authorizer{asking{}}}}
	if s.authorizePromptly(&prompted{s: s, q: &request{}}) {
		t.Error("the request was allowed")
	}
}
