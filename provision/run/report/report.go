// Package report defines the events that a run reports while it works.
package report

import (
	"time"

	"clusterctl/provision/plan"
	"clusterctl/provision/step"
)

// Kinds of events.
const (
	Connect = "connect" // a machine is reached
	Begin   = "begin"   // work on a machine begins; Message says what is done
	Send    = "send"    // a file goes to a machine
	Sending = "sending" // progress of a file that takes some seconds to send: Bytes of Size
	Step    = "step"    // a step was applied
	Done    = "done"    // a machine is as declared
	Object  = "object"  // an object was applied or is healthy
	Failed  = "failed"
	Note    = "note"
	Phase   = "phase" // a phase of the run that takes some time begins
)

// Event is something that happened in a run.
type Event struct {
	Time    time.Time    `json:"time"`
	Kind    string       `json:"kind"`
	Machine string       `json:"machine,omitempty"` // address
	Change  *step.Change `json:"change,omitempty"`
	Object  *plan.Object `json:"object,omitempty"`
	Message string       `json:"message,omitempty"`
	Bytes   int64        `json:"bytes,omitempty"` // bytes sent so far
	Size    int64        `json:"size,omitempty"`  // bytes to compress, or compressed bytes to send
}
