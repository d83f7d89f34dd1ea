# One line each over ./dev, which also serves where make is missing.
.PHONY: setup run test check bench chaos migrate docs help

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
chaos:
	@./dev chaos
migrate:
	@./dev migrate
docs:
	@./dev docs
