package check

import (
	"testing"
	"time"
)

// sequential makes operations sequential, each of one second.
func sequential(list ...Operation) []Operation {
	for i := range list {
		list[i].Key, list[i].Client = "k", i
		if list[i].Return == 0 {
			list[i].Call, list[i].Return = time.Duration(2*i)*time.Second, time.Duration(2*i+1)*time.Second
		}
	}
	return list
}

func TestHistoriesWithoutAValidOrderAreRejected(t *testing.T) {
	create := Operation{Kind: Create, Value: "a", Outcome: OutcomeOK, Revision: 5}
	update := func(base, value string, outcome Outcome, revision int64) Operation {
		return Operation{Kind: Update, Base: base, Value: value, Outcome: outcome, Revision: revision}
	}
	get := func(value string, revision int64) Operation {
		return Operation{Kind: Get, Value: value, Outcome: OutcomeOK, Revision: revision}
	}
	notFound := Operation{Kind: Get, Outcome: OutcomeNotFound}
	remove := Operation{Kind: Delete, Outcome: OutcomeOK}
	for name, test := range map[string]struct {
		history []Operation
		good    bool
	}{
		"write and read": {sequential(create, get("a", 5), update("a", "b", OutcomeOK, 6), get("b", 6),
			remove, notFound), true},
		"a lost update: two from the same base": {sequential(create, update("a", "b", OutcomeOK, 6),
			update("a", "c", OutcomeOK, 7)),
			false},
		"an acknowledged write that is gone": {sequential(create, notFound), false},
		"an acknowledged update that is undone": {sequential(create, update("a", "b", OutcomeOK, 6), get("a", 5)),
			false},
		"a stale read after a newer one": {sequential(create, update("a", "b", OutcomeOK, 6), get("b", 6), get("a", 5)),
			false},
		"a read of what is deleted":         {sequential(create, remove, get("a", 5)), false},
		"a conflict without another writer": {sequential(create, update("a", "b", OutcomeConflict, 0)), false},
		"a conflict after another write": {sequential(create, update("a", "b", OutcomeOK, 6),
			update("a", "c", OutcomeConflict, 0)), true},
		"created twice": {sequential(create,
			Operation{Kind: Create, Value: "b", Outcome: OutcomeOK, Revision: 6}), false},
		"exists when it does not": {sequential(Operation{Kind: Create, Value: "b", Outcome: OutcomeExists}),
			false},
		"a value under another revision":  {sequential(create, get("a", 6)), false},
		"a write under an older revision": {sequential(create, update("a", "b", OutcomeOK, 4)), false},
		"an unknown write that is seen": {sequential(create, update("a", "b", OutcomeUnknown, 0), get("b", 6)),
			true},
		"an unknown write that is not seen": {sequential(create, update("a", "b", OutcomeUnknown, 0), get("a", 5)),
			true},
		"an unknown write that is seen and undone": {sequential(create, update("a", "b", OutcomeUnknown, 0),
			get("b", 6),
			get("a", 5)), false},
		"an unknown write that is seen later": {sequential(create, update("a", "b", OutcomeUnknown, 0), get("a", 5),
			get("b", 6)),
			true},
		"an unknown deletion": {sequential(create, Operation{Kind: Delete, Outcome: OutcomeUnknown}, get("a", 5),
			notFound), true},
		"an unknown write must follow the known": {sequential(create, update("a", "b", OutcomeUnknown, 0),
			update("a", "c", OutcomeOK, 6),
			get("b", 7)), false},
	} {
		t.Run(name, func(t *testing.T) {
			if findings := Linearizable(test.history, 10*time.Second); (len(findings) == 0) != test.good {
				t.Errorf("good is %v, findings %v", test.good, findings)
			}
		})
	}
}

func TestReadsDuringAWriteMaySeeEitherValue(t *testing.T) {
	history := []Operation{
		{Key: "k", Kind: Create, Value: "a", Outcome: OutcomeOK, Revision: 5, Call: 0, Return: 1},
		{Key: "k", Kind: Update, Base: "a", Value: "b", Outcome: OutcomeOK, Revision: 6, Call: 2, Return: 9},
		{Key: "k", Kind: Get, Value: "a", Outcome: OutcomeOK, Revision: 5, Call: 3, Return: 4},
		{Key: "k", Kind: Get, Value: "b", Outcome: OutcomeOK, Revision: 6, Call: 5, Return: 6},
	}
	if findings := Linearizable(history, time.Second); len(findings) > 0 {
		t.Error(findings)
	}
	history[2].Value, history[2].Revision, history[3].Value, history[3].Revision = "b", 6, "a", 5
	if findings := Linearizable(history, time.Second); len(findings) != 1 {
		t.Error("a read that goes back in time was accepted")
	}
}
