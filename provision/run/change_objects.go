package run

import (
	"context"
	"errors"

	"clusterctl/provision/plan"
	"clusterctl/provision/run/session"
)

// withObjects changes machines, and applies the objects as soon as an API server answers. So a machine that hangs or
// fails does not delay the objects. control changes an existing control plane. It runs before the objects are applied,
// even if it fails, because a new release may know kinds that the former release does not. rest is all other work on
// machines and runs in parallel. refused are the objects that the API refuses; they do not stop other work.
func (c *change) withObjects(ctx context.Context, control, rest func(context.Context) error) (refused,
	failed error) {
	failed = control(ctx)
	through := make(chan struct{})
	go func() {
		defer close(through)
		if failed == nil {
			failed = rest(ctx)
		}
	}()
	brought, err := c.objects.AwaitAPIServer(ctx, through), error(nil)
	if brought {
		err = c.objects.Apply(ctx)
	}
	<-through
	if !brought && failed == nil && !session.IsInterrupted(ctx) {
		brought, err = true, c.objects.Apply(ctx) // its error explains why the API does not answer
	}
	var list, labels session.RefusedError
	err = list.Collect(err)
	if brought && !session.IsInterrupted(ctx) {
		labelErr := labels.Collect(c.objects.LabelNodes(ctx))
		// A machine that has finished meanwhile may run the webhook because of which objects were refused.
		if len(list.List) > 0 && err == nil && len(c.session.WithAction(plan.Create, plan.Change, plan.Replace)) > 0 &&
			!session.IsInterrupted(ctx) {
			list = session.RefusedError{}
			err = list.Collect(c.objects.Apply(ctx))
		}
		err = errors.Join(err, labelErr)
	}
	if list.Add(labels); len(list.List) > 0 {
		refused = list
	}
	if failed = errors.Join(failed, err); failed == nil && refused == nil && c.session.HasAll() {
		failed = c.objects.AwaitHealthy(ctx)
	}
	return refused, failed
}
