# One line each over ./dev, which also serves where make is missing.
.PHONY: setup run test check bench bench-money bench-reports bench-pages bench-explorer bench-router bench-engine chaos screenshots migrate docs help

help:
	@./dev help
setup:
	@./dev setup
run:
	@./dev run
test:
	@./dev test
check:
	@./dev check
bench:
	@./dev bench
bench-money:
	@./dev bench-money
bench-pages:
	@./dev bench-pages $(ARGS)
bench-explorer:
	@./dev bench-explorer $(ARGS)

bench-reports:
	@./dev bench-reports
bench-router:
	@./dev bench-router $(ARGS)
bench-engine:
	@./dev bench-engine $(ARGS)
chaos:
	@./dev chaos
screenshots:
	@./dev screenshots
migrate:
	@./dev migrate
docs:
	@./dev docs
