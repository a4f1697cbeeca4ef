package cluster

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var (
	customSeed  = flag.Uint64("custom-seed", 1, "of the bodies of custom resources that a gateway and a server judge")
	customCount = flag.Int("custom-objects", 2000, "number of bodies of custom resources that a gateway and a server judge")
)

// prepareCustom makes the definitions, the policies, and an object of each resource, on a server.
func (s documentSide) prepareCustom(ctx context.Context) error {
	for _, definition := range customDefinitions() {
		if err := s.must(ctx, "POST", definitions, definition, 201, 409); err != nil {
			return err
		}
	}
	if err := s.must(ctx, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+customNamespace+`","labels":{"custom":"yes"}}}`, 201, 409); err != nil {
		return err
	}
	for plural, kind := range map[string]string{"shapes": "Shape", "forms": "Form"} {
		path := strings.Replace(customPath, "shapes", plural, 1)
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := s.send(ctx, "GET", path, jsonType, nil)
			return answer.code == 200, err
		})
		if err != nil {
			return err
		}
		if err := s.must(ctx, "POST", path, fmt.Sprintf(customTarget, "target", kind), 201, 409); err != nil {
			return err
		}
	}
	for _, policy := range nullPolicies() {
		path := policiesPath
		if strings.Contains(policy, "PolicyBinding") {
			path = bindingsPath
		}
		if err := s.must(ctx, "POST", path, policy, 201, 409); err != nil {
			return err
		}
	}
	return nil
}

// customInForce waits until both policies are.
func (s documentSide) customInForce(ctx context.Context) error {
	for _, plural := range []string{"shapes", "forms"} {
		path := strings.Replace(customPath, "shapes", plural, 1) + "/target?dryRun=All"
		err := poll(changeLimit, 50*time.Millisecond, func() (bool, error) {
			answer, err := s.send(ctx, "PATCH", path, mergePatch, []byte(`{"spec":{"t":"v"}}`))
			if err != nil || answer.echo == "" {
				return false, err
			}
			answer, err = s.send(ctx, "PATCH", path, mergePatch, []byte(`{"spec":{"t":"evil"}}`))
			return strings.HasSuffix(answer.message, "evil"), err
		})
		if err != nil {
			return fmt.Errorf("%s: policies: %w", s.name, err)
		}
	}
	return nil
}

// Nulls and members that no schema has are evaluated as by a server, which drops some of them before its policies see the object, and the same objects
// are stored. One of the policies ignores errors: an expression that only fails here would let everything through.
func TestCustomResourcesAreEvaluatedAsTheirSchemaHasThem(t *testing.T) {
	aboutEvaluatingFairgate(t)
	bed, ctx := must[*AdmissionBed](t)(admissionBed()), inTime(t, time.Duration(5+*customCount/600)*time.Minute)
	gateway := evaluatingFairgate(t, FairgateOptions{Admission: "enforce", Fidelity: "completed"})
	server := newDocumentSide(t, "server", bed.Enforcing.Endpoint)
	plain := newDocumentSide(t, "plain", bed.Plain.Endpoint)
	completed := plain.through(t, "completed", gateway.Endpoint)
	for _, side := range []documentSide{server, plain} {
		succeeds(t, side.prepareCustom(ctx))
	}
	for _, side := range []documentSide{server, completed} {
		succeeds(t, side.customInForce(ctx))
	}
	tally := documentTally{kinds: map[string]int{}}
	maker := customMaker{random: rand.New(rand.NewPCG(*customSeed, *customSeed))}
	for range *customCount {
		sent := maker.next()
		want, got, err := bothAnswers(ctx, sent, server, completed)
		if err != nil {
			t.Fatal(err)
		}
		tally.evaluateCustom(sent, want, got)
	}
	fmt.Printf("CUSTOM OBJECTS {\"seed\":%d,\"bodies\":%d,\"alike\":%d,\"denied by both\":%d,\"refused by both\":%d,\"wrong\":%d}\n",
		*customSeed, *customCount, tally.alike, tally.denied, tally.refused, len(tally.wrong))
	for i, wrong := range tally.wrong {
		if i < 10 {
			t.Error(wrong)
		}
	}
	if len(tally.wrong) > 10 {
		t.Errorf("and %d more", len(tally.wrong)-10)
	}
	if tally.alike-tally.denied < *customCount/5 || tally.denied < *customCount/20 {
		t.Errorf("%d bodies are stored and %d denied by both: the comparison shows too little", tally.alike-tally.denied, tally.denied)
	}
}

// evaluateCustom compares what a server and a gateway made of a custom resource.
func (d *documentTally) evaluateCustom(sent sentDocument, want, got documentAnswer) {
	isEvil := func(answer documentAnswer) bool { return strings.HasSuffix(answer.message, "evil") }
	switch {
	case want.isAccepted() && got.isAccepted():
		if want.echo != got.echo || storedForm(want.object) != storedForm(got.object) {
			d.fault(sent, "another object", want, got)
			return
		}
		d.alike++
	case want.isAccepted() || got.isAccepted():
		d.fault(sent, "accepted by one alone", want, got)
	case isEvil(want) != isEvil(got) && isEvil(want):
		d.fault(sent, "denied by the server, and refused otherwise by the gateway", want, got)
	case isEvil(want):
		d.denied++
		d.alike++
	default:
		// Policies come before the validation of the object here.
		d.refused++
	}
}
