// Package check checks what was recorded of a cluster under faults: whether histories of the API are linearizable,
// watches, requests to a workload, and conditions that must hold of objects and containers at any time. Everything here
// is a function of recorded values. tests/suites/chaos does the recording.
package check

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is what an operation does with a key.
type Kind string

// Operations of clients on a key.
const (
	Create Kind = "create"
	Get    Kind = "get"
	Update Kind = "update" // with the resource version of Base as its precondition
	Delete Kind = "delete"
)

// Outcome is the answer that a client received.
type Outcome string

// Answers that a client can receive. Unknown is an error that leaves open whether the operation took place. An
// operation that certainly did not take place is not in the history.
const (
	OutcomeOK       Outcome = "ok"
	OutcomeExists   Outcome = "exists"
	OutcomeNotFound Outcome = "not found"
	OutcomeConflict Outcome = "conflict"
	OutcomeUnknown  Outcome = "unknown"
)

// Operation is one call and its answer. A value is never written twice.
type Operation struct {
	Client       int
	Key          string
	Kind         Kind
	Base         string // the value on which an update is based
	Value        string // the value that was written, or that a get returned
	Outcome      Outcome
	Revision     int64 // the resource version in the answer; 0: none
	Call, Return time.Duration
}

func (o Operation) String() string {
	return fmt.Sprintf("%s %s %s base %q value %q: %s at revision %d (%s to %s, client %d)",
		o.Key, o.Kind, "", o.Base, o.Value, o.Outcome, o.Revision, o.Call, o.Return, o.Client)
}

// register is the state of a key: its value, which is empty if the key does not exist, and its resource version if that
// is known.
type register struct {
	value       string
	revision    int64 // of the value; 0: unknown, because its writer received no answer
	minRevision int64 // every later write has a higher revision
}

// step reports whether an operation may have its outcome in a state, and returns the next state. A write of unknown
// outcome takes place whenever it can. If it is ordered last, no other operation observes it.
func (s register) step(o Operation) (bool, register) {
	here := s.value != ""
	if o.Kind == Get {
		switch o.Outcome {
		case OutcomeNotFound:
			return !here, s
		case OutcomeOK:
			if s.value != o.Value || !here || s.revision != 0 && s.revision != o.Revision ||
				o.Revision <= s.minRevision && s.revision == 0 {
				return false, s
			}
			return true, register{s.value, o.Revision, o.Revision}
		}
		return true, s
	}
	able := map[Kind]bool{Create: !here, Update: here && s.value == o.Base, Delete: here}[o.Kind]
	next := register{value: o.Value, minRevision: s.minRevision}
	if o.Kind == Delete {
		next.value = ""
	}
	switch o.Outcome {
	case OutcomeUnknown:
		if able {
			return true, next
		}
		return true, s
	case OutcomeOK:
		if o.Revision != 0 && o.Kind != Delete {
			if o.Revision <= s.minRevision {
				return false, s
			}
			next.revision, next.minRevision = o.Revision, o.Revision
		}
		return able, next
	case OutcomeExists:
		return o.Kind == Create && here, s
	case OutcomeNotFound:
		return o.Kind != Create && !here, s
	case OutcomeConflict:
		return o.Kind == Update && here && s.value != o.Base, s
	}
	return false, s
}

// Linearizable checks for every key whether there is one order of its operations that agrees with their answers and
// with their times: an operation that returned before another began is ordered before it. It returns the keys whose
// history has no such order, or was not decided within limit.
func Linearizable(history []Operation, limit time.Duration) []string {
	keys := map[string][]porcupine.Operation{}
	var order []string
	for _, o := range history {
		if _, seen := keys[o.Key]; !seen {
			order = append(order, o.Key)
		}
		end := int64(o.Return)
		if o.Outcome == OutcomeUnknown {
			end = math.MaxInt64
		}
		keys[o.Key] = append(keys[o.Key],
			porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Call), Output: o, Return: end})
	}
	model := porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := state.(register).step(input.(Operation))
			return ok, next
		},
		Equal: func(a, b any) bool { return a.(register) == b.(register) },
	}
	var findings []string
	deadline := time.Now().Add(limit)
	for _, key := range order {
		left := max(time.Until(deadline), time.Millisecond)
		switch porcupine.CheckOperationsTimeout(model, keys[key], left) {
		case porcupine.Illegal:
			findings = append(findings, fmt.Sprintf("the answers about %s contradict each other: %s", key,
				transcript(keys[key])))
		case porcupine.Unknown:
			findings = append(findings, fmt.Sprintf("whether the %d answers about %s agree could not be decided in %s",
				len(keys[key]), key, limit))
		}
	}
	return findings
}

func transcript(operations []porcupine.Operation) string {
	text := ""
	for _, o := range operations {
		text += "\n    " + o.Input.(Operation).String()
	}
	return text
}
